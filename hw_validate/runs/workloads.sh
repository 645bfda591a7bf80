# Read by the scripts beside it, which set $out and $part.
gathers="--workload llama3-70b-tp8-qkv-8k --workload llama3-70b-tp8-gate-up-8k
--workload llama3-405b-tp8-gate-up-8k --workload gpt3-175b-tp8-qkv-2k --workload llama3-8b-tp8-gate-up-8k
--workload llama3-8b-fsdp8-gate-up-8k --workload llama3-8b-cp8-scores-128k
--gemm 4096,57344,4096 --gemm 8192,28672,8192"
workloads="$gathers --workload mixtral-8x7b-ep8-gate-up-2k"
repeated="--workload llama3-70b-tp8-gate-up-2k --workload llama3-70b-tp8-gate-up-256
--workload gpt3-175b-tp8-mlp-up-2k --workload qwen2.5-72b-tp8-gate-up-4k
--workload deepseek-v3-cp8-kv-up-32k"
more="--workload llama3-8b-tp8-qkv-2k --workload llama3-8b-tp8-qkv-8k --workload llama3-8b-tp8-kv-8k
--workload llama3-8b-tp8-gate-up-32k --workload llama3-70b-tp8-qkv-4k --workload llama3-70b-tp8-qkv-32k
--workload llama3-70b-tp8-gate-up-32k --workload llama3-405b-tp8-qkv-1k --workload llama3-405b-tp8-qkv-8k
--workload llama3-405b-tp8-qkv-32k --workload qwen2.5-72b-tp8-qkv-16k --workload gpt3-175b-tp8-qkv-16k
--workload llama3-8b-fsdp8-qkv-512 --workload llama3-8b-fsdp8-qkv-2k --workload llama3-8b-fsdp8-gate-up-512
--workload llama3-8b-fsdp8-gate-up-2k --workload llama3-70b-fsdp8-gate-up-1k --workload llama3-70b-fsdp8-gate-up-8k
--workload llama3-405b-fsdp8-qkv-2k --workload mixtral-8x22b-ep8-gate-up-4k"
measure() {
	name=$1
	shift
	python3 -m hw_validate "$@" --out "$out/$name.jsonl" --resume
}
wanted() {
	test "$part" = all || test "$part" = "$1"
}
