#!/bin/sh
# Fits h200.yaml, h200_pcie.yaml and h200_self.yaml anew to the committed runs, from the values in them.
# Run it in the project's folder, with ficco on the path; it takes a minute.
set -eu
gpus=topologies/gpus
runs=hw_validate/runs/h200
work=$(mktemp -d)
fit() {
	name=$1
	shift
	ficco calibrate $runs/parts.jsonl.gz $runs/parts-fp8.jsonl.gz "$@" --out "$work/machine.yaml" \
		--gpu-out "$work/$name.yaml"
	# all three have the same measured shapes
	sed "s/$name.gemm.csv/h200.gemm.csv/" "$work/$name.yaml" >"$gpus/$name.yaml"
}
fit h200 --machine h200_8
cp "$work/h200.gemm.csv" "$gpus/h200.gemm.csv"
fit h200_pcie --machine h200_host_8 --direction 'host>dev0'
fit h200_self --machine h200_self_8 --keep copy,core_copy
rm -r "$work"
