#!/bin/sh
# All runs that one gpu and its host's memory allow: sh one_gpu.sh FOLDER [PART]; about 20 minutes.
# PART: machine, parts, core, host, mesh or dtypes; all of them unless given. Needs ficco[cuda] or ficco[hip].
set -eu
out=$1
part=${2:-all}
. "$(dirname "$0")/workloads.sh"

if wanted machine; then
	python3 -m hw_validate doctor --json "$out/doctor.json"
fi
if wanted parts; then
	measure parts microbench $workloads $repeated --rounds 8
	measure parts-fp8 microbench $workloads --sets gemm --dtype fp8 --rounds 8
	measure parts-sustained microbench $workloads --sets gemm --rounds 5 --regime sustained
fi
if wanted core; then
	measure core run $workloads $repeated --map self --map core-mesh --engine core --rounds 8
	measure core-host run $repeated --map host --engine core --rounds 8
	measure eager run --workload llama3-70b-tp8-gate-up-8k --map host --submission graph,eager --rounds 8
fi
if wanted host; then
	measure host run $workloads --map host --copy-queues peer,1 --straight --rounds 8
	measure host-repeated run $repeated --map host --copy-queues peer,1 --straight --rounds 8 --passes 2
fi
if wanted mesh; then
	measure parts-more microbench $more --sets gemm --rounds 8
	measure host-mesh run $workloads $repeated --map host-mesh --rounds 16
	measure host-mesh-more run $more --map host-mesh --rounds 8
fi
if wanted dtypes; then
	measure parts-fp16 microbench $workloads $repeated --sets gemm --dtype fp16 --rounds 8
	measure parts-fp32 microbench $repeated --sets gemm --dtype fp32 --num-chunks 2,4 --rounds 6
fi
