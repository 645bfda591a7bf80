#!/bin/sh
# Fits h200.yaml, h200_links.yaml, h200_pcie.yaml, h200_self.yaml and h200_host_links.yaml anew to the committed runs, from
# the values in them. Run it in the project's folder, with ficco on the path; it takes five minutes of one core.
set -eu
gpus=topologies/gpus
others="hw_validate/runs/h200_dtypes/parts-fp16.jsonl.gz hw_validate/runs/h200_dtypes/parts-fp32.jsonl.gz"
work=$(mktemp -d)
fit() { # NAME SHAPES RUNS OPTIONS: writes a gpu's file, whose measured shapes are in SHAPES.gemm.csv
	name=$1
	shapes=$2
	runs=hw_validate/runs/$3
	shift 3
	ficco calibrate "$runs/parts.jsonl.gz" "$runs/parts-fp8.jsonl.gz" "$@" --out "$work/machine.yaml"
	# the other types were measured on a gpu of their own, which calibrate does not mix with another
	ficco calibrate $others --machine "$work/machine.yaml" --out "$work/all.yaml" --gpu-out "$work/$name.yaml"
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
# links of their own, played by the host's: one copy for all of them, of slices that are held apart
fit h200_host_links h200_host_links h200_mesh hw_validate/runs/h200_mesh/parts-more.jsonl.gz \
	--machine h200_host_8 --direction 'host>dev0'
links=$gpus/h200_host_links.yaml
awk '/^ +(queue_s|gap_share):$/ {skip = 1; next} skip && /^ +- / {next} {skip = 0; print}' $links |
	sed -e 's/num_dma_engines: 1$/num_dma_engines: 7/' -e "s/gpu.num_dma_engines: .*/gpu.num_dma_engines: $engines/" \
		-e 's/^    queue_s: .*/    queue_s: 0.0/' -e 's/^    gap_share: .*/    gap_share: 0.0/' >"$work/links.yaml"
cat >>"$work/links.yaml" <<'END'
  profile.copy.queue_s: 'emulated: one copy plays all links (hw_validate/links.py), so that no queue is opened'
  profile.copy.gap_share: 'emulated: slices are held apart, so that no copy is strided where it reads'
END
cp "$work/links.yaml" $links
rm -r "$work"
