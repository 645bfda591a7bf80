#!/bin/sh
# Makes again what docs/heuristics.md states: sh heuristics.sh FOLDER; about half an hour on two cores, resumable.
# Run it in the project's folder, with ficco on the path. Sweeps are seeded and reports of them are the same byte for byte.
set -eu
out=$1
four=uniform-fused-2d,uniform-fused-1d,hetero-fused-1d,hetero-unfused-1d
runs=hw_validate/runs
set_of() { # NAME COUNT SEED: a set of random layers
	ficco scenarios make random --count "$2" --seed "$3" --out "$out/$1.yaml"
}
sweep() { # TABLE SET MACHINE...: simulates it
	table=$out/$1.csv
	scenarios=$out/$2.yaml
	shift 2
	test -f "$table" && return
	machines=
	for machine; do machines="$machines --machine $machine"; done
	resume=
	test -f "$table.part" && resume=--resume
	ficco sweep "$scenarios" $machines --makespans-only --jobs 2 --out "$table" $resume
}
set_of train 160 1
set_of test 120 2
set_of other 60 3
set_of held 60 4
sweep train train mi300x_8
sweep test test mi300x_8 h200_8
sweep other other ring_8 torus_2x4
sweep held held ring_8 torus_2x4 hypercube_8 torus_4x4 h100_8 a100_4 h200_nvlink_mesh_8

rules="--rule published --rule published-literal --rule size-threshold --rule closed-form"
ficco heuristic evaluate "$out/test.csv" "$out/held.csv" $rules --json "$out/rules.json"
ficco heuristic tune "$out/train.csv" "$out/test.csv" --on mi300x_8 --among $four --rule published \
	--parameter tau_s=10us:10ms:61 --plot "$out/tau.png" --json "$out/tau.json"
ficco heuristic evaluate "$out/train.csv" "$out/test.csv" --on mi300x_8 --among $four --rule published \
	--set tau_s=0.00031623 --json "$out/draws.json"
ficco heuristic evaluate "$out/other.csv" "$out/held.csv" --on ring_8 --on torus_2x4 --among $four \
	--rule published --set tau_s=0.00031623 --json "$out/forwarding.json"
ficco heuristic portability "$out/test.csv" "$out/held.csv" --rule published --parameter tau_s=1us:10s:29 \
	--json "$out/portability.json"
nvlink="$runs/h200_x2/dma.jsonl.gz $runs/h200_x2/repeated.jsonl.gz"
ficco heuristic evaluate $nvlink --machine h200_8 --map switch --copy-queues 7 $rules --json "$out/switch.json"
ficco heuristic evaluate $nvlink --machine h200_nvlink_mesh_8 --map mesh --copy-queues 7 $rules --json "$out/mesh.json"
ficco heuristic tune $nvlink --machine h200_nvlink_mesh_8 --map mesh --copy-queues 7 --rule closed-form \
	--parameter side_by_side=0.7:1.2:21 --json "$out/side_by_side.json"
ficco heuristic evaluate $runs/h200/host.jsonl.gz $runs/h200/host-repeated.jsonl.gz --machine h200_host_8 --map host \
	--copy-queues 7 $rules --json "$out/host.json"
ficco heuristic evaluate $runs/h200_x2/own.jsonl.gz --machine h200_2 --map own --engine dma $rules --json "$out/own.json"
ficco heuristic evaluate $runs/h200_mesh/host-mesh.jsonl.gz $runs/h200_mesh/host-mesh-more.jsonl.gz --machine h200_host_mesh_8 \
	$rules --json "$out/slow_mesh.json"
