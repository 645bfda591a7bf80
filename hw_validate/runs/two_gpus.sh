#!/bin/sh
# All runs on two gpus that reach each other's memory: sh two_gpus.sh FOLDER [PART]; about 20 minutes.
# Plans for 8 gpus as a switch (peers' data on the second gpu) and as an emulated mesh (shard-level
# schedules read from pinned host memory), by copy engines and by kernels, and plans for two gpus as
# they are. PART: machine, parts, dma, core, repeated or own; all of them unless given.
set -eu
out=$1
part=${2:-all}
. "$(dirname "$0")/workloads.sh"

if wanted machine; then
	python3 -m hw_validate doctor --devices 2 --json "$out/doctor.json"
fi
if wanted parts; then
	measure parts microbench $workloads $repeated --devices 2 --rounds 8
	measure parts-fp8 microbench $workloads --sets gemm --dtype fp8 --devices 2 --rounds 8
fi
if wanted dma; then
	measure dma run $workloads --map switch --map mesh --copy-queues peer,1 --straight --tensor-copies \
		--rounds 8
	measure eager run --workload llama3-70b-tp8-gate-up-8k --map switch --submission graph,eager --rounds 8
fi
if wanted core; then
	measure core run $workloads $repeated --map switch --map mesh --engine core --rounds 8
fi
if wanted repeated; then
	measure repeated run $repeated --map switch --map mesh --copy-queues peer,1 --straight --rounds 8 --passes 2
fi
if wanted own; then
	measure own run $gathers --num-gpus 2 --map own --engine dma,core --rounds 8
fi
