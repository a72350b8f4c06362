// Every head's query through that head's own matrix: out[s, h, c] = sum over n of queries[s, h, n] * weights[h, n, c].
// A workgroup makes LANES columns of one head for BLOCK_S new tokens; a lane holds one column of each token, so that
// it reads a weight once and uses it BLOCK_S times.

struct Sizes {
  new_tokens: u32,
  num_heads: u32,
  nope_dim: u32,
  latent_dim: u32,
}

// pointers
@group(0) @binding(0) var<storage, read> p_queries: array<f32>;  // [s, h, n]
@group(0) @binding(1) var<storage, read> p_weights: array<f32>;  // [h, n, c]
@group(0) @binding(2) var<storage, read_write> p_out: array<f32>;  // [s, h, c]
// sizes
@group(0) @binding(3) var<uniform> sizes: Sizes;
// strides: every array is contiguous, its last axis the fastest
// meta-parameters
const LANES = 64u;
const BLOCK_S = 8u;
const BLOCK_N = 64u;

var<workgroup> b_queries: array<f32, BLOCK_S * BLOCK_N>;  // [BLOCK_S, BLOCK_N]

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) program: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i_column = program.x * LANES + lane;
  let i_head = program.y;
  let o_token = program.z * BLOCK_S;
  let m_column = i_column < sizes.latent_dim;
  var acc: array<f32, BLOCK_S>;  // [BLOCK_S]

  for (var o_nope = 0u; o_nope < sizes.nope_dim; o_nope += BLOCK_N) {
    // load tile
    for (var i = lane; i < BLOCK_S * BLOCK_N; i += LANES) {
      let i_token = o_token + i / BLOCK_N;
      let i_nope = o_nope + i % BLOCK_N;
      var value = 0.0;
      if (i_token < sizes.new_tokens && i_nope < sizes.nope_dim) {
        value = p_queries[(i_token * sizes.num_heads + i_head) * sizes.nope_dim + i_nope];
      }
      b_queries[i] = value;
    }
    workgroupBarrier();

    // accumulate
    let nope_here = min(BLOCK_N, sizes.nope_dim - o_nope);
    if (m_column) {
      for (var i_nope = 0u; i_nope < nope_here; i_nope++) {
        let weight = p_weights[(i_head * sizes.nope_dim + o_nope + i_nope) * sizes.latent_dim + i_column];
        for (var i_token = 0u; i_token < BLOCK_S; i_token++) {
          acc[i_token] += b_queries[i_token * BLOCK_N + i_nope] * weight;
        }
      }
    }
    workgroupBarrier();
  }

  // store
  for (var i_token = 0u; i_token < BLOCK_S; i_token++) {
    if (m_column && o_token + i_token < sizes.new_tokens) {
      p_out[((o_token + i_token) * sizes.num_heads + i_head) * sizes.latent_dim + i_column] = acc[i_token];
    }
  }
}
