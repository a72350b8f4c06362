// Absorbed decode: every head of a request attends to the one set of latents, by an online softmax over tiles of tokens.
// A workgroup takes HEADS heads of one request. It loads a tile once and uses it twice, as keys and as values, for all
// of its heads; more heads are more workgroups, and each loads every tile: with 128 heads a tile is loaded four times.
// A lane makes one score of the tile, and then holds COLUMNS columns of the result for every head of its workgroup.

struct Sizes {
  num_heads: u32,
  latent_dim: u32,
  rope_dim: u32,
  max_tokens: u32,
  scale: f32,
}

// pointers
@group(0) @binding(0) var<storage, read> p_queries: array<f32>;  // [b, h, c + r]
@group(0) @binding(1) var<storage, read> p_cache: array<f32>;  // [b, max_tokens, c + r]
@group(0) @binding(2) var<storage, read> p_lengths: array<u32>;  // [b]
@group(0) @binding(3) var<storage, read_write> p_out: array<f32>;  // [b, h, c]
@group(0) @binding(4) var<storage, read_write> p_lse: array<u32>;  // [b, h], as bits: a shader may not hold -inf
// sizes
@group(0) @binding(5) var<uniform> sizes: Sizes;
// strides: every array is contiguous, its last axis the fastest
// meta-parameters
const HEADS = 32u;
const TILE = 8u;
const LANES = HEADS * TILE;
const MAX_LATENT = 512u;
const MAX_WIDTH = 576u;
const COLUMNS = MAX_LATENT / LANES;
const ROW = MAX_WIDTH + 1u;  // an odd stride puts the tokens of a tile into different banks

const LOWEST = -1e30;  // below every score, and far enough from overflow
const MINUS_INFINITY = 0xff800000u;

var<workgroup> b_tile: array<f32, TILE * ROW>;  // [TILE, c + r]
var<workgroup> b_scores: array<f32, LANES>;  // [HEADS, TILE], then the weights
var<workgroup> b_rescale: array<f32, HEADS>;  // [HEADS]
var<workgroup> m_i: array<f32, HEADS>;  // [HEADS], the largest score so far
var<workgroup> l_i: array<f32, HEADS>;  // [HEADS], the sum of the weights so far

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) program: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i_request = program.y;
  let o_head = program.x * HEADS;
  let width = sizes.latent_dim + sizes.rope_dim;
  let length = p_lengths[i_request];
  let o_cache = i_request * sizes.max_tokens * width;
  let i_head = o_head + lane / TILE;
  let o_query = (i_request * sizes.num_heads + i_head) * width;
  let m_head = i_head < sizes.num_heads;

  var acc: array<array<f32, COLUMNS>, HEADS>;  // [HEADS, COLUMNS]
  if (lane < HEADS) {
    m_i[lane] = LOWEST;
    l_i[lane] = 0.0;
  }

  for (var o_tile = 0u; o_tile < length; o_tile += TILE) {
    // load tile
    for (var i = lane; i < TILE * width; i += LANES) {
      let i_token = i / width;
      let i_feature = i % width;
      var value = 0.0;
      if (o_tile + i_token < length) {
        value = p_cache[o_cache + (o_tile + i_token) * width + i_feature];
      }
      b_tile[i_token * ROW + i_feature] = value;
    }
    workgroupBarrier();

    // scores
    let i_token = lane % TILE;
    var score = LOWEST;
    if (m_head && o_tile + i_token < length) {
      var dot = 0.0;
      for (var i_feature = 0u; i_feature < width; i_feature++) {
        dot += p_queries[o_query + i_feature] * b_tile[i_token * ROW + i_feature];
      }
      score = sizes.scale * dot;
    }
    b_scores[lane] = score;
    workgroupBarrier();

    // new maximum, rescale
    if (lane < HEADS) {
      var m_new = m_i[lane];
      for (var i = 0u; i < TILE; i++) {
        m_new = max(m_new, b_scores[lane * TILE + i]);
      }
      let rescale = exp(m_i[lane] - m_new);
      var l_new = l_i[lane] * rescale;
      for (var i = 0u; i < TILE; i++) {
        let weight = exp(b_scores[lane * TILE + i] - m_new);  // 0 where there is no token
        b_scores[lane * TILE + i] = weight;
        l_new += weight;
      }
      b_rescale[lane] = rescale;
      m_i[lane] = m_new;
      l_i[lane] = l_new;
    }
    workgroupBarrier();

    // accumulate
    for (var i_column = 0u; i_column < COLUMNS; i_column++) {
      let i_latent = lane + i_column * LANES;
      if (i_latent < sizes.latent_dim) {
        for (var i = 0u; i < HEADS; i++) {
          acc[i][i_column] *= b_rescale[i];
        }
        for (var i = 0u; i < TILE; i++) {
          let value = b_tile[i * ROW + i_latent];
          for (var j = 0u; j < HEADS; j++) {
            acc[j][i_column] += b_scores[j * TILE + i] * value;
          }
        }
      }
    }
    workgroupBarrier();
  }

  // store
  for (var i = 0u; i < HEADS; i++) {
    if (o_head + i < sizes.num_heads) {
      let o_out = (i_request * sizes.num_heads + o_head + i) * sizes.latent_dim;
      for (var i_column = 0u; i_column < COLUMNS; i_column++) {
        let i_latent = lane + i_column * LANES;
        if (i_latent < sizes.latent_dim) {
          var mixed = 0.0;
          if (length > 0u) {
            mixed = acc[i][i_column] / l_i[i];
          }
          p_out[o_out + i_latent] = mixed;
        }
      }
    }
  }
  if (lane < HEADS && o_head + lane < sizes.num_heads) {
    var bits = MINUS_INFINITY;
    if (length > 0u) {
      bits = bitcast<u32>(m_i[lane] + log(l_i[lane]));
    }
    p_lse[i_request * sizes.num_heads + o_head + lane] = bits;
  }
}
