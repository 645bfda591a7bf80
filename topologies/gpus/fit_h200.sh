#!/bin/sh
# Fits h200.yaml, h200_links.yaml, h200_pcie.yaml and h200_self.yaml anew to the committed runs, from the values in them.
# Run it in the project's folder, with ficco on the path; it takes a minute.
set -eu
gpus=topologies/gpus
work=$(mktemp -d)
fit() { # NAME SHAPES RUNS OPTIONS: writes a gpu's file, whose measured shapes are in SHAPES.gemm.csv
	name=$1
	shapes=$2
	runs=hw_validate/runs/$3
	shift 3
	ficco calibrate "$runs/parts.jsonl.gz" "$runs/parts-fp8.jsonl.gz" "$@" \
		--out "$work/machine.yaml" --gpu-out "$work/$name.yaml"
	sed "s/$name.gemm.csv/$shapes.gemm.csv/" "$work/$name.yaml" >"$gpus/$name.yaml"
	cp "$work/$name.gemm.csv" "$gpus/$shapes.gemm.csv"
}
fit h200 h200 h200_x2 --machine h200_8 --direction 'dev1>dev0'
# an engine for each link, as on gpus of a mesh; all else is measured
engines="'emulated: one for each link of a mesh, where an H200 has one for all (h200.yaml)'"
sed -e 's/num_dma_engines: 1$/num_dma_engines: 7/' -e "s/gpu.num_dma_engines: .*/gpu.num_dma_engines: $engines/" \
	$gpus/h200.yaml >$gpus/h200_links.yaml
fit h200_pcie h200_pcie h200 --machine h200_host_8 --direction 'host>dev0'
# the same gpu in the same runs, so the same shapes
fit h200_self h200_pcie h200 --machine h200_self_8 --keep copy,core_copy
rm -r "$work"
