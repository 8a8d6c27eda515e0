__global__ void reduce(float* out, const float* in) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  out[blockIdx.x] = block_reduce_sum(tile);
}
