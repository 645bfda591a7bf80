"""The copy kernel: pieces of rows, by a set number of blocks.

It is the core engine (copies that occupy compute units, as those of RCCL and NCCL do) and does the
copies within a gpu's memory, for which copy engines are slow.
"""

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["COPY_THREADS", "SOURCE", "WIDTHS", "Piece", "joined", "kernel_name", "width_of"]

COPY_THREADS = 512
TILE_BYTES = 32 * 1024
WIDTHS = (16, 8, 4, 2, 1)
"""Bytes that a thread moves at once, widest first."""

SOURCE = """
struct Piece {
  const char* src; char* dst;
  unsigned long long src_pitch, dst_pitch, row_bytes, rows;
  unsigned long long across, rows_per_tile, tiles;  // a tile: part of a row, or several whole rows
};

template <typename T>
__device__ void copy(const Piece* pieces, unsigned count) {
  const unsigned long long tile_bytes = TILE_BYTES;
  __shared__ unsigned long long tiles[256];
  unsigned long long turn = blockIdx.x;  // tiles go round the blocks over all pieces
  for (unsigned base = 0; base < count; base += 256) {
    const unsigned held = count - base < 256 ? count - base : 256;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < held; i += blockDim.x) tiles[i] = pieces[base + i].tiles;
    __syncthreads();
    for (unsigned p = 0; p < held; ++p) {
      if (turn >= tiles[p]) {
        turn -= tiles[p];
        continue;
      }
      const Piece piece = pieces[base + p];
      const unsigned across = (unsigned)piece.across;
      unsigned long long t = turn;
      for (; t < piece.tiles; t += gridDim.x) {
        const unsigned long long row = (unsigned)t / across * piece.rows_per_tile;
        const unsigned long long start = (unsigned)t % across * tile_bytes;
        unsigned long long width = piece.row_bytes - start;
        if (width > tile_bytes) width = tile_bytes;
        unsigned long long rows = piece.rows - row;
        if (rows > piece.rows_per_tile) rows = piece.rows_per_tile;
        const unsigned per_row = (unsigned)(width / sizeof(T));
        const unsigned total = per_row * (unsigned)rows;
        const char* src = piece.src + row * piece.src_pitch + start;
        char* dst = piece.dst + row * piece.dst_pitch + start;
        for (unsigned v = threadIdx.x; v < total; v += 4 * blockDim.x) {
          T kept[4];
#pragma unroll
          for (int u = 0; u < 4; ++u) {
            const unsigned i = v + u * blockDim.x;
            if (i < total) kept[u] = ((const T*)(src + i / per_row * piece.src_pitch))[i % per_row];
          }
#pragma unroll
          for (int u = 0; u < 4; ++u) {
            const unsigned i = v + u * blockDim.x;
            if (i < total) ((T*)(dst + i / per_row * piece.dst_pitch))[i % per_row] = kept[u];
          }
        }
      }
      turn = t - piece.tiles;
    }
  }
}

extern "C" __global__ void copy16(const Piece* p, unsigned n) { copy<uint4>(p, n); }
extern "C" __global__ void copy8(const Piece* p, unsigned n) { copy<uint2>(p, n); }
extern "C" __global__ void copy4(const Piece* p, unsigned n) { copy<unsigned>(p, n); }
extern "C" __global__ void copy2(const Piece* p, unsigned n) { copy<unsigned short>(p, n); }
extern "C" __global__ void copy1(const Piece* p, unsigned n) { copy<unsigned char>(p, n); }
""".replace("TILE_BYTES", str(TILE_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of bytes from one place to another; the order of the fields is that of the kernel."""

    src: int
    dst: int
    src_pitch: int
    dst_pitch: int
    row_bytes: int
    rows: int

    @property
    def is_contiguous(self) -> bool:
        """Whether all rows lie one behind the other at both ends."""
        return self.rows == 1 or self.src_pitch == self.dst_pitch == self.row_bytes

    @property
    def nbytes(self) -> int:
        """Bytes that are moved."""
        return self.row_bytes * self.rows

    def flat(self) -> "Piece":
        """The same bytes as a single row, where they are contiguous."""
        if not self.is_contiguous:
            return self
        return Piece(
            src=self.src,
            dst=self.dst,
            src_pitch=self.nbytes,
            dst_pitch=self.nbytes,
            row_bytes=self.nbytes,
            rows=1,
        )

    @property
    def across(self) -> int:
        """Tiles along a row."""
        return -(-self.row_bytes // TILE_BYTES)

    @property
    def rows_per_tile(self) -> int:
        """Whole rows in a tile; 1 where a row is longer than a tile."""
        return max(1, TILE_BYTES // self.row_bytes)

    @property
    def tiles(self) -> int:
        """Tiles in all."""
        return self.across * -(-self.rows // self.rows_per_tile)

    def fields(self) -> tuple[int, ...]:
        """The values as the kernel reads them."""
        return (
            self.src,
            self.dst,
            self.src_pitch,
            self.dst_pitch,
            self.row_bytes,
            self.rows,
            self.across,
            self.rows_per_tile,
            self.tiles,
        )


def joined(pieces: list[Piece]) -> list[Piece]:
    """One piece with the bytes of several, where those are alike and lie evenly apart; else they."""
    first = pieces[0]
    shape = (first.src_pitch, first.dst_pitch, first.row_bytes, first.rows)
    src_step, dst_step = (pieces[-1].src - first.src), (pieces[-1].dst - first.dst)
    if len(pieces) > 1:
        src_step, dst_step = src_step // (len(pieces) - 1), dst_step // (len(pieces) - 1)
    for i, piece in enumerate(pieces):
        alike = (piece.src_pitch, piece.dst_pitch, piece.row_bytes, piece.rows) == shape
        apart = (piece.src, piece.dst) == (first.src + i * src_step, first.dst + i * dst_step)
        if not (alike and apart):
            return pieces
    if len(pieces) == 1:
        return pieces
    if first.rows == 1 and min(src_step, dst_step) >= first.row_bytes:
        return [replace(first, src_pitch=src_step, dst_pitch=dst_step, rows=len(pieces)).flat()]
    if (src_step, dst_step) == (first.rows * first.src_pitch, first.rows * first.dst_pitch):
        return [replace(first, rows=first.rows * len(pieces))]
    return pieces


def width_of(pieces: list[Piece]) -> int:
    """The widest access that suits the alignment of all pieces, in bytes."""
    offsets = 0
    for piece in pieces:
        offsets |= piece.src | piece.dst | piece.row_bytes
        if piece.rows > 1:
            offsets |= piece.src_pitch | piece.dst_pitch
    return next(width for width in WIDTHS if offsets % width == 0)


def kernel_name(width: int) -> str:
    """The kernel that moves so many bytes at once."""
    assert width in WIDTHS
    return f"copy{width}"


def all_kernels() -> tuple[str, ...]:
    """Names of all kernels in the source."""
    return tuple(kernel_name(width) for width in WIDTHS)


def table_of(pieces: list[Piece]) -> list[Any]:
    """Values of all pieces one after another, for a table in the gpu's memory."""
    return [value for piece in pieces for value in piece.fields()]
