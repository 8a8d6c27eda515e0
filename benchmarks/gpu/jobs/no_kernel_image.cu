#include <cstdio>
__global__ void scale(float* x) { x[threadIdx.x] *= 2.0f; }
int main() {
  float* x;
  cudaMalloc(&x, 256 * sizeof(float));
  scale<<<1, 256>>>(x);
  cudaError_t e = cudaDeviceSynchronize();
  if (e == cudaSuccess) e = cudaGetLastError();
  if (e != cudaSuccess) {
    fprintf(stderr, "CUDA error at scale: %s (%s)\n", cudaGetErrorString(e), cudaGetErrorName(e));
    return 1;
  }
  printf("ok\n");
}
