// What an encoder of the BERT family does beside matrix products, in half precision with sums in single precision.
//
// Texts lie end to end, without padding: a matrix is [N, width], N the tokens of all texts. Matrices are row-major.

#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int WARP = 32;
// Query rows and keys of one step of attention; 16 rows per warp.
constexpr int TILE = 64;
constexpr int ATTENTION_WARPS = TILE / 16;
constexpr int ATTENTION_THREADS = ATTENTION_WARPS * WARP;

__device__ float warp_sum(float x) {
  for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffff, x, offset);
  return x;
}

// LayerNorm of the row that each warp holds in its part of shared memory; `sum` is the sum of the lane's own values.
__device__ void write_normalised(const float *row, float sum, half2 *out, const float *weight, const float *bias, int width, float eps) {
  const int lane = threadIdx.x % WARP;
  const float mean = warp_sum(sum) / width;
  float square = 0.0f;
  for (int i = lane; i < width; i += WARP) square += (row[i] - mean) * (row[i] - mean);
  const float scale = rsqrtf(warp_sum(square) / width + eps);
  for (int i = lane; i < width / 2; i += WARP) {
    const float2 x = ((const float2 *)row)[i], w = ((const float2 *)weight)[i], b = ((const float2 *)bias)[i];
    out[i] = __floats2half2_rn((x.x - mean) * scale * w.x + b.x, (x.y - mean) * scale * w.y + b.y);
  }
}

// x[r] = LayerNorm(words[ids[r]] + positions[places[r]]), one warp per row. Shared memory: one row of floats per warp.
extern "C" __global__ void embed(half *x, const half *words, const half *positions, const unsigned *ids, const unsigned *places,
                                 const float *weight, const float *bias, int rows, int width, float eps) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int r = blockIdx.x * (blockDim.x / WARP) + warp;
  if (r >= rows) return;
  float *row = shared + warp * width;
  const half2 *word = (const half2 *)(words + (size_t)ids[r] * width);
  const half2 *position = (const half2 *)(positions + (size_t)places[r] * width);
  float sum = 0.0f;
  for (int i = lane; i < width / 2; i += WARP) {
    const float2 a = __half22float2(word[i]), b = __half22float2(position[i]);
    const float2 value = {a.x + b.x, a.y + b.y};
    ((float2 *)row)[i] = value;
    sum += value.x + value.y;
  }
  __syncwarp();
  write_normalised(row, sum, (half2 *)(x + (size_t)r * width), weight, bias, width, eps);
}

// x = LayerNorm(x + other + other_bias) in place, one warp per row. Shared memory: one row of floats per warp.
extern "C" __global__ void add_norm(half *x, const half *other, const float *other_bias, const float *weight, const float *bias, int rows,
                                    int width, float eps) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int r = blockIdx.x * (blockDim.x / WARP) + warp;
  if (r >= rows) return;
  float *row = shared + warp * width;
  half2 *own = (half2 *)(x + (size_t)r * width);
  const half2 *added = (const half2 *)(other + (size_t)r * width);
  float sum = 0.0f;
  for (int i = lane; i < width / 2; i += WARP) {
    const float2 a = __half22float2(own[i]), b = __half22float2(added[i]), c = ((const float2 *)other_bias)[i];
    const float2 value = {a.x + b.x + c.x, a.y + b.y + c.y};
    ((float2 *)row)[i] = value;
    sum += value.x + value.y;
  }
  __syncwarp();
  write_normalised(row, sum, own, weight, bias, width, eps);
}

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }

// x = gelu(x + bias) in place, by the error function as BERT has it. Eight values per thread and step; `width` is a multiple of 8.
extern "C" __global__ void bias_gelu(half *x, const float *bias, size_t count, int width) {
  const size_t stride = (size_t)gridDim.x * blockDim.x * 8;
  for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < count; i += stride) {
    const float *b = bias + i % width;
    uint4 packed = *(uint4 *)(x + i);
    half2 *values = (half2 *)&packed;
    for (int k = 0; k < 4; k++) {
      const float2 value = __half22float2(values[k]);
      values[k] = __floats2half2_rn(gelu(value.x + b[2 * k]), gelu(value.y + b[2 * k + 1]));
    }
    *(uint4 *)(x + i) = packed;
  }
}

// Copies rows of one head into shared memory, bias added and scaled; zeros beyond the rows and beyond the head's width. Eight values per
// thread and step where the rows allow it.
template <int D>
__device__ void load_head(half *target, const half *rows, size_t stride, const float *bias, int count, int width, float scale) {
  constexpr int LD = D + 8;
  if (width == D) {
    // A thread stays in its columns, so that their bias stays in registers.
    constexpr int CHUNKS = D / 8;
    const int c = threadIdx.x % CHUNKS * 8;
    float b[8];
    for (int k = 0; k < 8; k++) b[k] = bias[c + k] * scale;
    for (int r = threadIdx.x / CHUNKS; r < TILE; r += ATTENTION_THREADS / CHUNKS) {
      uint4 packed = {0, 0, 0, 0};
      if (r < count) {
        packed = *(const uint4 *)(rows + r * stride + c);
        half2 *values = (half2 *)&packed;
        for (int k = 0; k < 4; k++) {
          const float2 x = __half22float2(values[k]);
          values[k] = __floats2half2_rn(x.x * scale + b[2 * k], x.y * scale + b[2 * k + 1]);
        }
      }
      *(uint4 *)(target + r * LD + c) = packed;
    }
    return;
  }
  for (int i = threadIdx.x; i < TILE * D / 2; i += ATTENTION_THREADS) {
    const int r = i / (D / 2), c = i % (D / 2) * 2;
    half2 value = __floats2half2_rn(0.0f, 0.0f);
    if (r < count && c < width) {
      const float2 x = __half22float2(*(const half2 *)(rows + r * stride + c)), b = *(const float2 *)(bias + c);
      value = __floats2half2_rn((x.x + b.x) * scale, (x.y + b.y) * scale);
    }
    *(half2 *)(target + r * LD + c) = value;
  }
}

// Bytes of shared memory that `attention` needs.
template <int D>
constexpr int attention_bytes() {
  return 2 * TILE * (D + 8) * (int)sizeof(half) + TILE * (TILE + 4) * (int)sizeof(float) + TILE * (D + 4) * (int)sizeof(float);
}

// Softmax(Q Kᵀ / sqrt(width)) V for up to 64 query rows of one head of one text, with the running maximum and sum of
// arXiv:2205.14135. One block per (tile, head); tiles[i] = (first row of the text, its length, first query row in it).
// D: the width of a head, rounded up to 16. qkv [N, 3 heads width] without the bias [3 heads width]; out [N, heads width].
template <int D>
__device__ void attention(half *out, const half *qkv, const float *bias, const int3 *tiles, int heads, int width) {
  constexpr int LD = D + 8, LD_SCORES = TILE + 4, LD_OUT = D + 4, LD_WEIGHTS = 2 * LD_SCORES;
  extern __shared__ __align__(32) unsigned char memory[];
  half *keys = (half *)memory, *values = keys + TILE * LD;
  float *scores = (float *)(values + TILE * LD), *sums = scores + TILE * LD_SCORES;
  const int3 tile = tiles[blockIdx.x];
  const int length = tile.y, hidden = heads * width, column = blockIdx.y * width;
  const size_t stride = 3 * (size_t)hidden;
  const half *text = qkv + tile.x * stride + column;
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int queries = min(TILE, length - tile.z);

  // The queries pass through the place of the keys into fragments that stay.
  load_head<D>(keys, text + tile.z * stride, stride, bias + column, queries, width, rsqrtf((float)width));
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> query[D / 16];
  for (int k = 0; k < D / 16; k++) wmma::load_matrix_sync(query[k], keys + warp * 16 * LD + k * 16, LD);

  // Two lanes per query row, each with half of the columns.
  const int row = warp * 16 + lane / 2, part = lane % 2;
  float *row_scores = scores + row * LD_SCORES + part * (TILE / 2);
  half *row_weights = (half *)(scores + row * LD_SCORES) + part * (TILE / 2);
  float *row_sums = sums + row * LD_OUT;
  float largest = -INFINITY, total = 0.0f;
  for (int first = 0; first < length; first += TILE) {
    const int count = min(TILE, length - first);
    __syncthreads();
    load_head<D>(keys, text + first * stride + hidden, stride, bias + hidden + column, count, width, 1.0f);
    load_head<D>(values, text + first * stride + 2 * hidden, stride, bias + 2 * hidden + column, count, width, 1.0f);
    __syncthreads();
    for (int c = 0; c < TILE / 16; c++) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
      wmma::fill_fragment(sum, 0.0f);
      for (int k = 0; k < D / 16; k++) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> key;
        wmma::load_matrix_sync(key, keys + c * 16 * LD + k * 16, LD);
        wmma::mma_sync(sum, query[k], key, sum);
      }
      wmma::store_matrix_sync(scores + warp * 16 * LD_SCORES + c * 16, sum, LD_SCORES, wmma::mem_row_major);
    }
    __syncwarp();
    float x[TILE / 2];
    float most = largest;
#pragma unroll
    for (int i = 0; i < TILE / 2; i++) {
      x[i] = part * (TILE / 2) + i < count ? row_scores[i] : -INFINITY;
      most = fmaxf(most, x[i]);
    }
    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
    const float shrink = __expf(largest - most);
    total *= shrink;
    largest = most;
    // Both lanes have read their scores; the weights take the place of the row's.
    __syncwarp();
#pragma unroll
    for (int i = 0; i < TILE / 2; i += 2) {
      const float a = __expf(x[i] - most), b = __expf(x[i + 1] - most);
      total += a + b;
      *(half2 *)(row_weights + i) = __floats2half2_rn(a, b);
    }
    if (first > 0) {
      for (int i = part * (D / 2); i < (part + 1) * (D / 2); i++) row_sums[i] *= shrink;
    }
    __syncwarp();
    for (int c = 0; c < D / 16; c++) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
      float *place = sums + warp * 16 * LD_OUT + c * 16;
      if (first > 0) {
        wmma::load_matrix_sync(sum, place, LD_OUT, wmma::mem_row_major);
      } else {
        wmma::fill_fragment(sum, 0.0f);
      }
      for (int k = 0; k < TILE / 16; k++) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> weight;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> value;
        wmma::load_matrix_sync(weight, (half *)(scores + warp * 16 * LD_SCORES) + k * 16, LD_WEIGHTS);
        wmma::load_matrix_sync(value, values + k * 16 * LD + c * 16, LD);
        wmma::mma_sync(sum, weight, value, sum);
      }
      wmma::store_matrix_sync(place, sum, LD_OUT, wmma::mem_row_major);
    }
  }
  total += __shfl_xor_sync(0xffffffff, total, 1);
  __syncwarp();
  if (row < queries) {
    half2 *target = (half2 *)(out + (size_t)(tile.x + tile.z + row) * hidden + column);
    const float2 *sum = (const float2 *)row_sums;
    const float share = 1.0f / total;
    for (int i = part; i < width / 2; i += 2) target[i] = __floats2half2_rn(sum[i].x * share, sum[i].y * share);
  }
}

#define ATTENTION(D)                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS)                                                                           \
      attention_##D(half *out, const half *qkv, const float *bias, const int3 *tiles, int heads, int width) {                               \
    attention<D>(out, qkv, bias, tiles, heads, width);                                                                                      \
  }

ATTENTION(16)
ATTENTION(32)
ATTENTION(64)
ATTENTION(128)

// Of `pooled`, with the numbers of `PooledRows` in mod.rs; 0 is the mean.
#define POOL_FIRST 1
#define POOL_LAST 2
#define POOL_MAX 3

// out[t] = one row of the text's rows, made as `pooled` says, as floats; divided by its length if `normalise`. Zeros for a text without rows.
// One block per text; texts[t] = (first row, length). Shared memory: one float per warp.
extern "C" __global__ void pool(float *out, const half *x, const int2 *texts, int width, int pooled, int normalise) {
  extern __shared__ float shared[];
  const int2 text = texts[blockIdx.x];
  const bool is_one = pooled == POOL_FIRST || pooled == POOL_LAST;
  const int rows = is_one ? min(text.y, 1) : text.y;
  const int first = pooled == POOL_LAST ? text.x + max(text.y - 1, 0) : text.x;
  float *target = out + (size_t)blockIdx.x * width;
  float square = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    float sum = 0.0f;
    float largest = rows > 0 ? -INFINITY : 0.0f;
    for (int r = 0; r < rows; r++) {
      const float next = __half2float(x[(size_t)(first + r) * width + i]);
      sum += next;
      largest = fmaxf(largest, next);
    }
    const float value = pooled == POOL_MAX ? largest : sum / max(rows, 1);
    target[i] = value;
    square += value * value;
  }
  if (!normalise) return;
  square = warp_sum(square);
  if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = square;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < blockDim.x / WARP; i++) total += shared[i];
  const float scale = 1.0f / fmaxf(sqrtf(total), 1e-12f);
  for (int i = threadIdx.x; i < width; i += blockDim.x) target[i] *= scale;
}
