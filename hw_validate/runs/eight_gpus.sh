#!/bin/sh
# The program for eight gpus of one node, or four: [GPUS=4] sh eight_gpus.sh FOLDER STEP...
# STEP: dry (no gpu: checks all plans, their numbers and memory, and the time that the steps take),
# machine, parts, own, repeated, emulated, or all (these five, one after the other). Each takes less than
# ten minutes, all less than thirty. What is finished is left alone, what was cut off goes on.
# MEMORY: of a gpu, for dry. EACH, ALL: the allowance. BUDGET: of a step, after its start.
set -eu
out=$1
shift
part=
. "$(dirname "$0")/workloads.sh"
gpus=${GPUS:-8}
plans="--num-gpus $gpus --engine dma,core --rounds 8"
exchange=
if test "$gpus" = 8; then exchange="--workload mixtral-8x7b-ep8-gate-up-2k"; fi
dry=
mkdir -p "$out"

measure() {
	name=$1
	shift
	if test -n "$dry"; then
		test "$1" != run || set -- "$@" --rehearse --memory "${MEMORY:-139GiB}"
		python3 -m hw_validate "$@" --dry-run --json "$out/dry-$name.json"
		return
	fi
	if test -e "$out/$name.jsonl.gz"; then return; fi
	if ! test -e "$out/$name.jsonl"; then
		python3 -m hw_validate "$@" --out "$out/$name.jsonl" --resume --budget "${BUDGET:-9m}"
	fi
	if test -e "$out/$name.jsonl"; then gzip -9 -n "$out/$name.jsonl"; fi
}
step() {
	case $1 in
	machine)
		if test -n "$dry"; then
			python3 -m hw_validate doctor --devices "$gpus" --dry-run --json "$out/dry-machine.json"
		else
			python3 -m hw_validate doctor --devices "$gpus" --json "$out/doctor.json"
		fi
		;;
	parts)
		measure parts microbench $gathers $exchange $repeated --num-gpus "$gpus" --devices "$gpus" --rounds 8
		;;
	own) measure own run $gathers $exchange $plans --map own --collectives ;;
	repeated) measure repeated run $repeated $plans --map own --collectives --passes 2 ;;
	emulated) measure emulated run $gathers $exchange $repeated $plans --map switch ;;
	all) for each in machine parts own repeated emulated; do step "$each"; done ;;
	dry)
		dry=yes
		step all
		dry=
		python3 -m hw_validate allowance "$out/dry-machine.json" "$out/dry-parts.json" "$out/dry-own.json" \
			"$out/dry-repeated.json" "$out/dry-emulated.json" --most "${ALL:-30m}" --most-each "${EACH:-10m}"
		;;
	*)
		echo "eight_gpus.sh: unknown step $1" >&2
		exit 2
		;;
	esac
}
for wanted in "$@"; do step "$wanted"; done
