//! What an encoder computes on an NVIDIA GPU: half precision, sums in single precision.
//!
//! Matrix products are cuBLAS's, the rest is `encoder.cu`. One stream per GPU, and nothing waits but [`Gpu::pool`], whose result comes
//! back: calls are queued in order. Lengths are checked here, so that no kernel can reach beyond its buffers.

use std::fmt;
use std::sync::Arc;

use candle_core::{Error, Result, bail};
use cudarc::cublas::sys::cublasOperation_t;
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig};
use cudarc::driver::sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
use cudarc::driver::{self, CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
use half::f16;

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/encoder.ptx"));
/// Threads of a warp.
const WARP: u32 = 32;
/// Rows per block of the kernels that give a row to each warp.
const ROWS_PER_BLOCK: usize = 4;
/// Query rows, and keys, of a step of attention.
const TILE: usize = 64;
/// Widths of a head that attention is compiled for; others are padded to the next.
const HEAD_WIDTHS: [usize; 4] = [16, 32, 64, 128];
/// Shared memory that a kernel has without asking.
const SHARED_BYTES: usize = 48 << 10;
/// The widest head that attention takes; its width is even.
pub const HEAD_WIDTH_MAX: usize = HEAD_WIDTHS[HEAD_WIDTHS.len() - 1];
/// The widest row that LayerNorm takes.
pub const HIDDEN_MAX: usize = SHARED_BYTES / size_of::<f32>();

/// Values on the GPU in half precision.
pub type Halves = CudaSlice<f16>;
/// Values on the GPU in single precision.
pub type Floats = CudaSlice<f32>;

/// A GPU with the kernels loaded.
pub struct Gpu {
    name: String,
    /// Bytes.
    memory: u64,
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    embed: CudaFunction,
    add_norm: CudaFunction,
    bias_gelu: CudaFunction,
    pool: CudaFunction,
    attention: [CudaFunction; HEAD_WIDTHS.len()],
}

/// Weight and bias of a LayerNorm, each `[width]`.
#[derive(Debug)]
pub struct GpuNorm {
    pub weight: Floats,
    pub bias: Floats,
    pub eps: f32,
}

/// Texts that lie end to end, and where they are cut for attention.
#[derive(Debug)]
pub struct Texts {
    /// `(first row, length)` of each, as two numbers.
    ranges: CudaSlice<i32>,
    /// `(first row, length, first query row)` of each tile, as three numbers.
    tiles: CudaSlice<i32>,
    num_texts: usize,
    num_tiles: usize,
    rows: usize,
}

/// How the rows of a text become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    pub rows: PooledRows,
    /// Divided by its length.
    pub normalise: bool,
}

/// What one row is made of, with the numbers of `pool` in `encoder.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum PooledRows {
    /// The mean of all.
    Mean = 0,
    /// The first alone.
    First = 1,
    /// The last alone.
    Last = 2,
    /// In each column the largest value of all.
    Max = 3,
}

impl Gpu {
    /// The GPU of this number, from 0.
    ///
    /// # Errors
    /// If there is no driver, no cuBLAS, no such GPU, or one that is older than Ampere.
    pub fn open(ordinal: usize) -> Result<Self> {
        // A program that is linked to the libraries does not start without them.
        #[cfg(not(feature = "linked"))]
        {
            // SAFETY: both only look for a library of the system, which the driver and CUDA bring.
            let (has_driver, has_cublas) = unsafe { (driver::sys::is_culib_present(), cudarc::cublas::sys::is_culib_present()) };
            if !has_driver || !has_cublas {
                bail!("no {} was found", if has_driver { "cuBLAS of CUDA 13" } else { "driver (libcuda)" });
            }
        }
        let context = CudaContext::new(ordinal).of_gpu()?;
        // SAFETY: one stream uses this memory, so that no event is needed to order its uses.
        unsafe { context.disable_event_tracking() };
        context.bind_to_thread().of_gpu()?;
        let (_, memory) = driver::result::mem_get_info().of_gpu()?;
        let stream = context.new_stream().of_gpu()?;
        let module = context.load_module(PTX.into()).of_gpu()?;
        let load = |name: &str| module.load_function(name).of_gpu();
        Ok(Self {
            name: context.name().of_gpu()?,
            memory: memory as u64,
            blas: CudaBlas::new(Arc::clone(&stream)).of_gpu()?,
            embed: load("embed")?,
            add_norm: load("add_norm")?,
            bias_gelu: load("bias_gelu")?,
            pool: load("pool")?,
            attention: attention_kernels(&module)?,
            stream,
        })
    }

    /// The maker's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes that it has, free or not.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// A copy in half precision.
    ///
    /// # Errors
    /// If the GPU has no room.
    pub fn halves(&self, values: &[f32]) -> Result<Halves> {
        let values: Vec<f16> = values.iter().copied().map(f16::from_f32).collect();
        self.stream.clone_htod(&values).of_gpu()
    }

    /// A copy.
    ///
    /// # Errors
    /// If the GPU has no room.
    pub fn floats(&self, values: &[f32]) -> Result<Floats> {
        self.stream.clone_htod(values).of_gpu()
    }

    /// Room for `len` values.
    ///
    /// # Errors
    /// If the GPU has no room.
    pub fn zeros(&self, len: usize) -> Result<Halves> {
        self.stream.alloc_zeros(len).of_gpu()
    }

    /// Texts of these lengths, one behind the other.
    ///
    /// # Errors
    /// If the GPU has no room.
    pub fn texts(&self, lengths: &[usize]) -> Result<Texts> {
        let (mut ranges, mut tiles, mut row) = (Vec::with_capacity(2 * lengths.len()), Vec::new(), 0);
        for length in lengths {
            ranges.extend([row as i32, *length as i32]);
            (0..*length).step_by(TILE).for_each(|query| tiles.extend([row as i32, *length as i32, query as i32]));
            row += length;
        }
        let copy = |values: &[i32]| self.stream.clone_htod(values).of_gpu();
        Ok(Texts { ranges: copy(&ranges)?, tiles: copy(&tiles)?, num_texts: lengths.len(), num_tiles: tiles.len() / 3, rows: row })
    }

    /// `out = x weightᵀ`: `x` `[rows, input]`, `weight` `[output, input]`, `out` `[rows, output]`.
    ///
    /// # Errors
    /// If a buffer is too short.
    pub fn multiply(&self, x: &Halves, weight: &Halves, rows: usize, [input, output]: [usize; 2], out: &mut Halves) -> Result<()> {
        check("x", x.len(), rows * input)?;
        check("weight", weight.len(), output * input)?;
        check("out", out.len(), rows * output)?;
        // cuBLAS reads columns first, so that it sees every matrix transposed: outᵀ = weight xᵀ.
        let config = GemmConfig {
            transa: cublasOperation_t::CUBLAS_OP_T,
            transb: cublasOperation_t::CUBLAS_OP_N,
            m: output as i32,
            n: rows as i32,
            k: input as i32,
            alpha: f16::ONE,
            lda: input as i32,
            ldb: input as i32,
            beta: f16::ZERO,
            ldc: output as i32,
        };
        // SAFETY: the buffers hold the matrices of these sizes, checked above.
        unsafe { self.blas.gemm(config, weight, x, out) }.of_gpu()
    }

    /// `x[r] = LayerNorm(words[ids[r]] + positions[places[r]])`. The caller has checked that the ids and places are rows of the tables.
    ///
    /// # Errors
    /// If a buffer is too short.
    pub fn embed(&self, x: &mut Halves, [words, positions]: [&Halves; 2], [ids, places]: [&[u32]; 2], norm: &GpuNorm) -> Result<()> {
        let (rows, width) = (ids.len(), norm.weight.len());
        check("x", x.len(), rows * width)?;
        check("places", places.len(), rows)?;
        let last = |ids: &[u32]| ids.iter().max().map_or(0, |id| (*id as usize + 1) * width);
        check("words", words.len(), last(ids))?;
        check("positions", positions.len(), last(places))?;
        let (ids, places) = (self.stream.clone_htod(ids).of_gpu()?, self.stream.clone_htod(places).of_gpu()?);
        let (rows, columns) = (rows as i32, width as i32);
        let mut launch = self.stream.launch_builder(&self.embed);
        launch.arg(x).arg(words).arg(positions).arg(&ids).arg(&places).arg(&norm.weight).arg(&norm.bias).arg(&rows).arg(&columns);
        launch.arg(&norm.eps);
        // SAFETY: the arguments are those of the kernel, and the rows it reaches lie in the buffers, checked above.
        unsafe { launch.launch(row_blocks(rows as usize, width)?) }.of_gpu()?;
        Ok(())
    }

    /// `x = LayerNorm(x + other + other_bias)`, `x` and `other` `[rows, width]`.
    ///
    /// # Errors
    /// If a buffer is too short.
    pub fn add_norm(&self, x: &mut Halves, other: &Halves, other_bias: &Floats, norm: &GpuNorm, rows: usize) -> Result<()> {
        let width = norm.weight.len();
        check("x", x.len(), rows * width)?;
        check("other", other.len(), rows * width)?;
        check("the bias", other_bias.len(), width)?;
        let (num_rows, columns) = (rows as i32, width as i32);
        let mut launch = self.stream.launch_builder(&self.add_norm);
        launch.arg(x).arg(other).arg(other_bias).arg(&norm.weight).arg(&norm.bias).arg(&num_rows).arg(&columns).arg(&norm.eps);
        // SAFETY: as in `embed`.
        unsafe { launch.launch(row_blocks(rows, width)?) }.of_gpu()?;
        Ok(())
    }

    /// `x = gelu(x + bias)`, `x` `[rows, width]`, the width a multiple of 8.
    ///
    /// # Errors
    /// If a buffer is too short or the width no multiple of 8.
    pub fn bias_gelu(&self, x: &mut Halves, bias: &Floats, rows: usize) -> Result<()> {
        let width = bias.len();
        check("x", x.len(), rows * width)?;
        if !width.is_multiple_of(8) {
            bail!("a width of {width} is no multiple of 8");
        }
        let (count, columns) = (rows * width, width as i32);
        let mut launch = self.stream.launch_builder(&self.bias_gelu);
        launch.arg(x).arg(bias).arg(&count).arg(&columns);
        let blocks = (count / 8).div_ceil(256).clamp(1, 1 << 16) as u32;
        // SAFETY: as in `embed`.
        unsafe { launch.launch(LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }) }.of_gpu()?;
        Ok(())
    }

    /// Attention of every row over its whole text: `query_key_value` `[rows, 3 heads width]` without its `bias`, `out` `[rows, heads width]`.
    ///
    /// # Errors
    /// If a buffer is too short or a head wider than 128.
    pub fn attend(&self, query_key_value: &Halves, bias: &Floats, texts: &Texts, heads: usize, out: &mut Halves) -> Result<()> {
        let hidden = bias.len() / 3;
        let width = hidden / heads;
        check("query, key and value", query_key_value.len(), texts.rows * 3 * hidden)?;
        check("out", out.len(), texts.rows * hidden)?;
        let Some(kernel) =
            HEAD_WIDTHS.iter().position(|padded| width <= *padded).filter(|_| width * heads == hidden && width.is_multiple_of(2))
        else {
            bail!("heads of width {width} are not supported on a GPU");
        };
        let (num_heads, columns) = (heads as i32, width as i32);
        let mut launch = self.stream.launch_builder(&self.attention[kernel]);
        launch.arg(out).arg(query_key_value).arg(bias).arg(&texts.tiles).arg(&num_heads).arg(&columns);
        let config = LaunchConfig {
            grid_dim: (texts.num_tiles as u32, heads as u32, 1),
            block_dim: ((TILE / 16) as u32 * WARP, 1, 1),
            shared_mem_bytes: attention_bytes(HEAD_WIDTHS[kernel]) as u32,
        };
        // SAFETY: the tiles lie in the rows of the texts, for which the buffers were checked.
        unsafe { launch.launch(config) }.of_gpu()?;
        Ok(())
    }

    /// One row of `width` values per text, on the host.
    ///
    /// # Errors
    /// If `x` is too short, and what earlier calls failed with.
    pub fn pool(&self, x: &Halves, texts: &Texts, width: usize, pool: Pool) -> Result<Vec<f32>> {
        check("x", x.len(), texts.rows * width)?;
        let mut out: Floats = self.stream.alloc_zeros(texts.num_texts * width).of_gpu()?;
        let (columns, rows, normalise) = (width as i32, pool.rows as i32, i32::from(pool.normalise));
        let mut launch = self.stream.launch_builder(&self.pool);
        launch.arg(&mut out).arg(x).arg(&texts.ranges).arg(&columns).arg(&rows).arg(&normalise);
        let threads = (width as u32).next_multiple_of(WARP).min(256);
        let config = LaunchConfig {
            grid_dim: (texts.num_texts as u32, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: threads / WARP * size_of::<f32>() as u32,
        };
        // SAFETY: the texts lie in the rows of `x`, checked above.
        unsafe { launch.launch(config) }.of_gpu()?;
        self.stream.clone_dtoh(&out).of_gpu()
    }
}

/// The error of a call of the driver or of cuBLAS, as candle's.
trait OfGpu<T> {
    fn of_gpu(self) -> Result<T>;
}

impl<T, E: fmt::Display + Send + Sync + 'static> OfGpu<T> for std::result::Result<T, E> {
    fn of_gpu(self) -> Result<T> {
        self.map_err(Error::wrap)
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("name", &self.name).finish_non_exhaustive()
    }
}

fn check(name: &str, found: usize, needed: usize) -> Result<()> {
    if found < needed {
        bail!("{name} has {found} values on the GPU, {needed} are needed");
    }
    Ok(())
}

/// The kernels of [`HEAD_WIDTHS`], with the shared memory that each needs.
fn attention_kernels(module: &Arc<CudaModule>) -> Result<[CudaFunction; HEAD_WIDTHS.len()]> {
    let mut kernels = Vec::with_capacity(HEAD_WIDTHS.len());
    for width in HEAD_WIDTHS {
        let kernel = module.load_function(&format!("attention_{width}")).of_gpu()?;
        kernel.set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, attention_bytes(width) as i32).of_gpu()?;
        kernels.push(kernel);
    }
    Ok(kernels.try_into().expect("one for each width"))
}

/// As `attention_bytes` of `encoder.cu`: keys and values, scores, and sums of a tile.
const fn attention_bytes(width: usize) -> usize {
    2 * TILE * (width + 8) * size_of::<f16>() + TILE * (TILE + 4) * size_of::<f32>() + TILE * (width + 4) * size_of::<f32>()
}

/// Blocks of some warps, one row each, with a row of floats per warp in shared memory.
fn row_blocks(rows: usize, width: usize) -> Result<LaunchConfig> {
    let row = width * size_of::<f32>();
    let rows_per_block = ROWS_PER_BLOCK.min(SHARED_BYTES / row.max(1));
    if rows_per_block == 0 || !width.is_multiple_of(2) {
        bail!("rows of {width} values are not supported on a GPU");
    }
    Ok(LaunchConfig {
        grid_dim: (rows.div_ceil(rows_per_block) as u32, 1, 1),
        block_dim: (rows_per_block as u32 * WARP, 1, 1),
        shared_mem_bytes: (rows_per_block * row) as u32,
    })
}
