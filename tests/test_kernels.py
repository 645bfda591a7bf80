"""Layer: numpy. Pieces keep their bytes, and the copy kernel moves each of them exactly once.

The kernel itself runs too, as C++ on the CPU, where there is a compiler.
"""

import re
import shutil
import subprocess
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from hw_validate import kernels
from hw_validate.gpu import _piece
from hw_validate.kernels import WIDTHS, Piece, all_kernels, joined, kernel_name, table_of, width_of

TILE = 32768


@st.composite
def layouts(draw, max_pieces=4):
    """Pieces at places of their own in two flat memories; sizes around those of a tile."""
    unit = draw(st.sampled_from([1, 1, 2, 4, 8, 16]))
    src_at = dst_at = 0
    pieces = []
    for _ in range(draw(st.integers(1, max_pieces))):
        sizes = st.integers(1, 40) | st.sampled_from([TILE // 2, TILE - 16, TILE, TILE + 16, 3 * TILE])
        row_bytes = -(-draw(sizes) // unit) * unit
        rows = draw(st.integers(1, 9) if row_bytes > 100 else st.integers(1, 2000))
        pads = [unit * draw(st.integers(0, 3)) for _ in range(4)]
        src_at, dst_at = src_at + pads[0], dst_at + pads[1]
        piece = Piece(
            src=src_at,
            dst=dst_at,
            src_pitch=row_bytes + pads[2],
            dst_pitch=row_bytes + pads[3],
            row_bytes=row_bytes,
            rows=rows,
        )
        pieces.append(piece)
        src_at += rows * piece.src_pitch
        dst_at += rows * piece.dst_pitch
    return pieces, src_at, dst_at


def moves(piece):
    """Where each byte of a piece comes from and goes to."""
    rows = np.arange(piece.rows)[:, None]
    cols = np.arange(piece.row_bytes)[None, :]
    src = piece.src + rows * piece.src_pitch + cols
    dst = piece.dst + rows * piece.dst_pitch + cols
    return src.ravel(), dst.ravel()


def kernel_moves(pieces, width, num_blocks, num_threads):
    """The kernel's index arithmetic, block by block: source, destination and times of each access."""
    for block in range(num_blocks):
        turn = block
        for piece in pieces:
            wide = piece.row_bytes >= TILE
            across = (piece.row_bytes + TILE - 1) // TILE if wide else 1
            rows_per_tile = 1 if wide else TILE // piece.row_bytes
            down = (piece.rows + rows_per_tile - 1) // rows_per_tile
            assert piece.tiles == across * down
            t = turn
            while t < across * down:
                row = (t // across) * rows_per_tile
                start = (t % across) * TILE
                bytes_across = min(piece.row_bytes - start, TILE)
                rows = min(rows_per_tile, piece.rows - row)
                per_row = bytes_across // width
                total = per_row * rows
                src = piece.src + row * piece.src_pitch + start
                dst = piece.dst + row * piece.dst_pitch + start
                i = thread_indices(total, num_threads)
                yield (
                    src + (i // per_row) * piece.src_pitch + (i % per_row) * width,
                    dst + (i // per_row) * piece.dst_pitch + (i % per_row) * width,
                )
                t += num_blocks
            turn = t - across * down


def thread_indices(total, num_threads):
    """What all threads of a block reach: four at a time, a block's width apart."""
    threads = np.arange(min(num_threads, total))
    rounds = np.arange(0, total, 4 * num_threads)
    i = (threads[:, None, None] + rounds[:, None] + np.arange(4) * num_threads).ravel()
    return i[i < total]


@examples(150)
@given(layout=layouts(), num_blocks=st.integers(1, 40), num_threads=st.sampled_from([1, 7, 32, 512]))
def test_every_byte_is_copied_once(layout, num_blocks, num_threads):
    pieces, src_bytes, dst_bytes = layout
    width = width_of(pieces)
    wanted = np.full(dst_bytes, -1)
    for piece in pieces:
        src, dst = moves(piece)
        wanted[dst] = src
    came_from = np.full(dst_bytes, -1)
    times = np.zeros(dst_bytes, dtype=int)
    for src, dst in kernel_moves(pieces, width, num_blocks, num_threads):
        assert not (src % width).any()
        assert not (dst % width).any()
        for byte in range(width):
            np.add.at(times, dst + byte, 1)
            came_from[dst + byte] = src + byte
    assert came_from.max() < src_bytes
    assert np.array_equal(came_from, wanted)
    assert np.array_equal(times, wanted >= 0)


@examples(60)
@given(layout=layouts(), num_blocks=st.integers(1, 40))
def test_blocks_have_almost_equal_numbers_of_tiles(layout, num_blocks):
    """Tiles go round the blocks over all pieces, so that many small ones keep all blocks busy."""
    pieces, _, _ = layout
    counts = [0] * num_blocks
    turn = list(range(num_blocks))
    for piece in pieces:
        across = max(1, -(-piece.row_bytes // TILE))
        per_tile = max(1, TILE // piece.row_bytes)
        tiles = across * -(-piece.rows // per_tile)
        for block in range(num_blocks):
            mine = max(0, -(-(tiles - turn[block]) // num_blocks))
            counts[block] += mine
            turn[block] += mine * num_blocks - tiles
    assert max(counts) - min(counts) <= 1


@examples(200)
@given(layout=layouts())
def test_flat_pieces_move_the_same_bytes(layout):
    for piece in layout[0]:
        flat = piece.flat()
        assert flat.nbytes == piece.nbytes == piece.row_bytes * piece.rows
        assert flat.is_contiguous == piece.is_contiguous
        assert (flat.rows == 1) == piece.is_contiguous
        assert flat.flat() == flat
        for ours, theirs in zip(moves(flat), moves(piece), strict=True):
            assert np.array_equal(ours, theirs)


@examples(200)
@given(layout=layouts())
def test_the_width_suits_every_row_and_is_the_widest(layout):
    pieces, _, _ = layout
    width = width_of(pieces)
    places = {
        place
        for piece in pieces
        for row in range(min(piece.rows, 20))
        for place in (
            piece.src + row * piece.src_pitch,
            piece.dst + row * piece.dst_pitch,
            piece.row_bytes,
        )
    }
    assert all(place % width == 0 for place in places)
    wider = [w for w in WIDTHS if w > width]
    assert all(any(place % w for place in places) for w in wider)
    assert width <= width_of([piece.flat() for piece in pieces])


def test_the_pitch_of_a_single_row_does_not_matter():
    row = Piece(src=0, dst=16, src_pitch=3, dst_pitch=5, row_bytes=32, rows=1)
    assert row.is_contiguous
    assert width_of([row]) == 16


@examples(100)
@given(layout=layouts())
def test_the_table_is_the_struct_that_the_kernel_reads(layout):
    pieces, _, _ = layout
    struct = re.sub("//.*", "", kernels.SOURCE.split("struct Piece {")[1].split("}")[0])
    declared = [w.strip("*") for w in struct.replace(",", " ").replace(";", " ").split()]
    types = {"const", "char", "unsigned", "long"}
    names = [word for word in declared if word not in types]
    assert names[:6] == [field.name for field in fields(Piece)]
    table = table_of(pieces)
    assert table == [getattr(piece, name) for piece in pieces for name in names]
    held = torch.tensor(table, dtype=torch.int64)
    assert held.tolist() == table


def test_every_kernel_is_in_the_source():
    assert all_kernels() == tuple(kernel_name(width) for width in WIDTHS)
    for name in all_kernels():
        assert f'extern "C" __global__ void {name}(const Piece* p, unsigned n)' in kernels.SOURCE


# several pieces as one


@st.composite
def alike(draw):
    """Pieces of one shape, each by the same way after the one before, or one of them moved."""
    row_bytes, rows, count = draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    pads = [draw(st.integers(0, 3)) for _ in range(4)]
    src_pitch, dst_pitch = row_bytes + pads[0], row_bytes + pads[1]
    steps = (rows * src_pitch + pads[2], rows * dst_pitch + pads[3])
    pieces = [
        Piece(
            src=i * steps[0],
            dst=i * steps[1],
            src_pitch=src_pitch,
            dst_pitch=dst_pitch,
            row_bytes=row_bytes,
            rows=rows,
        )
        for i in range(count)
    ]
    if draw(st.booleans()):
        at = draw(st.integers(0, count - 1))
        pieces[at] = replace(pieces[at], src=pieces[at].src + 1000 + at)
    return pieces


@examples(300)
@given(pieces=alike())
def test_joined_pieces_move_the_same_bytes(pieces):
    together = joined(pieces)
    assert len(together) in (1, len(pieces))

    def all_moves(some):
        return sorted(pair for piece in some for pair in zip(*map(list, moves(piece)), strict=True))

    assert all_moves(together) == all_moves(pieces)


def test_chunks_of_shards_join_as_rows_and_slices_as_longer_ones():
    flat = [
        Piece(src=64 * i, dst=64 * i, src_pitch=16, dst_pitch=16, row_bytes=16, rows=1)
        for i in range(7)
    ]
    (rows,) = joined(flat)
    assert (rows.rows, rows.row_bytes, rows.src_pitch, rows.dst_pitch) == (7, 16, 64, 64)
    tall = [
        Piece(src=64 * i, dst=32 * i, src_pitch=16, dst_pitch=8, row_bytes=8, rows=4) for i in range(7)
    ]
    (longer,) = joined(tall)
    assert (longer.rows, longer.row_bytes, longer.src_pitch, longer.dst_pitch) == (28, 8, 16, 8)


# views as pieces


@st.composite
def views(draw):
    """The same rectangle of two matrices, both stored by rows or both by columns."""
    rows, cols = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    kind = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e4m3fn]))
    transposed = draw(st.booleans())
    found = []
    for _ in range(2):
        above, below, left, right = (draw(st.integers(0, 3)) for _ in range(4))
        above += transposed  # stored by columns, a single row would be one by rows as well
        shape = (above + rows + below, left + cols + right)
        whole = torch.arange(shape[0] * shape[1]).to(torch.float32).to(kind)
        matrix = whole.view(shape[::-1]).t() if transposed else whole.view(shape)
        found.append(matrix[above : above + rows, left : left + cols])
    return found


@examples(200)
@given(pair=views())
def test_a_piece_is_the_bytes_of_its_views(pair):
    src, dst = pair
    for piece in (_piece(src, dst), _piece(src, dst).flat()):
        assert piece.nbytes == src.numel() * src.element_size()
        given, taken = storage_bytes(src), storage_bytes(dst)
        taken[:] = 255
        places = moves(piece)
        taken[places[1] - dst.untyped_storage().data_ptr()] = given[
            places[0] - src.untyped_storage().data_ptr()
        ]
        assert torch.equal(dst.float(), src.float())
        assert (taken != 255).sum() <= piece.nbytes
    assert piece.is_contiguous == (piece.rows == 1)


def storage_bytes(tensor):
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return whole.numpy()


# the kernel as C++

SHIM = """
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __shared__ static  // blocks run one after another
struct Dim { unsigned x; };
static Dim blockIdx, gridDim, blockDim;
static thread_local Dim threadIdx;
static std::barrier<>* all_threads;
static void __syncthreads() { all_threads->arrive_and_wait(); }
struct uint4 { unsigned x, y, z, w; };
struct uint2 { unsigned x, y; };
static std::atomic<unsigned long long> moved;
template <typename T> struct Counted {
  T value;
  Counted& operator=(const Counted& other) {
    value = other.value;
    moved.fetch_add(1, std::memory_order_relaxed);
    return *this;
  }
};
"""
RUN = """
int main() {
  unsigned long long width, blocks, threads, count, src_bytes, dst_bytes;
  while (std::scanf("%llu %llu %llu %llu %llu %llu", &width, &blocks, &threads, &count, &src_bytes,
                    &dst_bytes) == 6) {
    std::vector<uint4> src_words(src_bytes / 16 + 2), dst_words(dst_bytes / 16 + 2);
    char* src = (char*)src_words.data();
    char* dst = (char*)dst_words.data();
    for (unsigned long long i = 0; i < src_bytes; ++i) src[i] = (char)(1 + (i * 31 + i / 97) % 251);
    std::vector<Piece> pieces(count);
    for (auto& p : pieces) {
      unsigned long long values[sizeof(Piece) / 8];
      for (auto& value : values) std::scanf("%llu", &value);
      values[0] += (unsigned long long)src;
      values[1] += (unsigned long long)dst;
      std::memcpy(&p, values, sizeof(Piece));
    }
    unsigned long long accesses = 0;
    for (auto& p : pieces) accesses += 2 * p.rows * p.row_bytes / width;
    moved = 0;
    gridDim.x = (unsigned)blocks;
    blockDim.x = (unsigned)threads;
    std::barrier<> barrier((long)threads);
    all_threads = &barrier;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
      std::vector<std::thread> running;
      for (unsigned i = 0; i < threads; ++i)
        running.emplace_back([&, i] {
          threadIdx.x = i;
          switch (width) {
            case 16: copy16(pieces.data(), (unsigned)count); break;
            case 8: copy8(pieces.data(), (unsigned)count); break;
            case 4: copy4(pieces.data(), (unsigned)count); break;
            case 2: copy2(pieces.data(), (unsigned)count); break;
            default: copy1(pieces.data(), (unsigned)count);
          }
        });
      for (auto& thread : running) thread.join();
    }
    std::vector<char> wanted(dst_bytes);
    for (auto& p : pieces)
      for (unsigned long long r = 0; r < p.rows; ++r)
        for (unsigned long long i = 0; i < p.row_bytes; ++i)
          wanted[p.dst - dst + r * p.dst_pitch + i] = p.src[r * p.src_pitch + i];
    unsigned long long wrong = moved != accesses;
    for (unsigned long long i = 0; i < dst_bytes; ++i) wrong += wanted[i] != dst[i];
    std::printf("%llu\\n", wrong);
  }
}
"""


def understands(compiler, text):
    command = [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    return (
        subprocess.run(command, input=text, capture_output=True, text=True, check=False).returncode == 0
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None or not understands(compiler, "#include <barrier>"):
        pytest.skip("no compiler for C++ 20")
    folder = tmp_path_factory.mktemp("kernel")
    counted, found = re.subn(r"copy<([\w ]+)>\(p, n\)", r"copy<Counted<\1>>(p, n)", kernels.SOURCE)
    assert found == len(WIDTHS)
    (folder / "kernel.cpp").write_text(SHIM + counted + RUN)
    command = [
        compiler,
        "-std=c++20",
        "-O1",
        "-w",
        "-pthread",
        "-fno-strict-aliasing",
        "kernel.cpp",
        "-o",
        "kernel",
    ]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder / "kernel"


@examples(8)
@given(
    cases=st.lists(
        st.tuples(layouts(max_pieces=3), st.integers(1, 9), st.integers(1, 5)),
        min_size=8,
        max_size=8,
    )
)
def test_the_kernel_copies_what_it_should(compiled, cases):
    run_compiled(
        compiled,
        [
            (pieces, width, num_blocks, num_threads, src_bytes, dst_bytes)
            for (pieces, src_bytes, dst_bytes), num_blocks, num_threads in cases
            for width in WIDTHS
            if width <= width_of(pieces)
        ],
    )


@pytest.mark.parametrize("num_pieces", [255, 256, 257, 600])
def test_any_number_of_pieces(compiled, num_pieces):
    pieces = [
        Piece(src=48 * i, dst=64 * i, src_pitch=24, dst_pitch=32, row_bytes=16, rows=2)
        for i in range(num_pieces)
    ]
    run_compiled(
        compiled,
        [
            (pieces, 8, num_blocks, num_threads, 48 * num_pieces, 64 * num_pieces)
            for num_blocks in (1, 7, 256, 700)
            for num_threads in (1, 3)
        ],
    )


def run_compiled(compiled, cases):
    lines = [
        f"{width} {num_blocks} {num_threads} {len(pieces)} {src_bytes} {dst_bytes} "
        + " ".join(map(str, table_of(pieces)))
        for pieces, width, num_blocks, num_threads, src_bytes, dst_bytes in cases
    ]
    done = subprocess.run(
        [compiled], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["0"] * len(lines)
