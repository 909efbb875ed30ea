/* cuBLAS and cuBLASLt: products take their time, and give nothing. */
#define _GNU_SOURCE
#include "streams.h"
#include <cublasLt.h>
#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

struct handle { cudaStream_t stream; cublasMath_t math; cublasPointerMode_t pointers; };

cublasStatus_t cublasCreate_v2(cublasHandle_t *made) {
    *made = calloc(1, sizeof(struct handle));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
#define OWN(handle) ((struct handle *)(handle))
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    OWN(handle)->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
    *stream = OWN(handle)->stream;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math) {
    OWN(handle)->math = math;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *math) {
    *math = OWN(handle)->math;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    OWN(handle)->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
    *mode = OWN(handle)->pointers;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t multiply(cudaStream_t stream, cudaDataType type, int tf32, double m, double n, double k,
                               double batches) {
    struct kernel kernel;
    if (m < 1 || n < 1 || batches < 1) return CUBLAS_STATUS_SUCCESS;
    price_product(device_of_stream(stream), type, tf32, m, n, k, batches, &kernel);
    return enqueue_kernel(stream, &kernel) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
static int allows_tf32(cublasHandle_t handle) { return (OWN(handle)->math & 0xf) == CUBLAS_TF32_TENSOR_OP_MATH; }
static cublasStatus_t move(cublasHandle_t handle, const char *name, double bytes) {
    cudaStream_t stream = OWN(handle)->stream;
    struct kernel kernel = {.name = name, .duration_ns = price_bytes(device_of_stream(stream), bytes),
                            .grid = {bytes / 16384 + 1, 1, 1}, .block = {128, 1, 1}, .registers = 32};
    return enqueue_kernel(stream, &kernel) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

/* Products of complex numbers are four of real ones. */
#define PRODUCTS(letter, element, type, times)                                                                       \
    cublasStatus_t cublas##letter##gemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, \
                                           int n, int k, const element *alpha, const element *a, int lda,            \
                                           const element *b, int ldb, const element *beta, element *c, int ldc) {    \
        return multiply(OWN(handle)->stream, type, allows_tf32(handle), m, n, (double)k * (times), 1);               \
    }                                                                                                                \
    cublasStatus_t cublas##letter##gemmStridedBatched(                                                               \
        cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const element *alpha, \
        const element *a, int lda, long long sa, const element *b, int ldb, long long sb, const element *beta,       \
        element *c, int ldc, long long sc, int count) {                                                              \
        return multiply(OWN(handle)->stream, type, allows_tf32(handle), m, n, (double)k * (times), count);           \
    }                                                                                                                \
    cublasStatus_t cublas##letter##gemmBatched(                                                                      \
        cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const element *alpha, \
        const element *const a[], int lda, const element *const b[], int ldb, const element *beta,                   \
        element *const c[], int ldc, int count) {                                                                    \
        return multiply(OWN(handle)->stream, type, allows_tf32(handle), m, n, (double)k * (times), count);           \
    }                                                                                                                \
    cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t handle, cublasOperation_t t, int m, int n,                 \
                                           const element *alpha, const element *a, int lda, const element *x,        \
                                           int incx, const element *beta, element *y, int incy) {                    \
        return move(handle, "software_gpu_gemv", (double)m * n * sizeof *a);                                         \
    }                                                                                                                \
    cublasStatus_t cublas##letter##trsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill,      \
                                           cublasOperation_t t, cublasDiagType_t diagonal, int m, int n,             \
                                           const element *alpha, const element *a, int lda, element *b, int ldb) {   \
        return multiply(OWN(handle)->stream, type, 0, m, n, (side == CUBLAS_SIDE_LEFT ? m : n) * (times) / 2.0, 1);  \
    }
PRODUCTS(S, float, CUDA_R_32F, 1)
PRODUCTS(D, double, CUDA_R_64F, 1)
PRODUCTS(C, cuComplex, CUDA_C_32F, 4)
PRODUCTS(Z, cuDoubleComplex, CUDA_C_64F, 4)

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                             const float *alpha, const void *a, cudaDataType type, int lda, const void *b,
                             cudaDataType type_b, int ldb, const float *beta, void *c, cudaDataType type_c, int ldc) {
    return multiply(OWN(handle)->stream, type, allows_tf32(handle), m, n, k, 1);
}
static int is_tf32(cublasHandle_t handle, cublasComputeType_t compute) {
    return compute == CUBLAS_COMPUTE_32F_FAST_TF32 || allows_tf32(handle);
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType type, int lda, const void *b,
                            cudaDataType type_b, int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return multiply(OWN(handle)->stream, type, is_tf32(handle, compute), m, n, k, 1);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                                          int n, int k, const void *alpha, const void *a, cudaDataType type, int lda,
                                          long long sa, const void *b, cudaDataType type_b, int ldb, long long sb,
                                          const void *beta, void *c, cudaDataType type_c, int ldc, long long sc,
                                          int count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return multiply(OWN(handle)->stream, type, is_tf32(handle, compute), m, n, k, count);
}
static size_t bytes_of(cudaDataType type) {
    switch (type) {
    case CUDA_R_64F:
    case CUDA_C_32F: return 8;
    case CUDA_C_64F: return 16;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    default: return 4;
    }
}
cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int incx, const float *y, int incy,
                             float *result) {
    return move(handle, "software_gpu_dot", 8.0 * n);
}
cublasStatus_t cublasDdot_v2(cublasHandle_t handle, int n, const double *x, int incx, const double *y, int incy,
                             double *result) {
    return move(handle, "software_gpu_dot", 16.0 * n);
}
cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void *x, cudaDataType type, int incx, const void *y,
                           cudaDataType type_y, int incy, void *result, cudaDataType type_result,
                           cudaDataType computed) {
    return move(handle, "software_gpu_dot", 2.0 * n * bytes_of(type));
}

/* ---- cuBLASLt: one algorithm for each product, without a workspace ---- */

struct product { cublasComputeType_t compute; cublasOperation_t a; };
struct layout { cudaDataType type; uint64_t rows, columns; int batches; };

cublasStatus_t cublasLtCreate(cublasLtHandle_t *made) {
    *made = calloc(1, sizeof(struct handle));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType_t scale) {
    struct product *product = calloc(1, sizeof *product);
    product->compute = compute;
    *made = (cublasLtMatmulDesc_t)product;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    free(product);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t size) {
    if (name == CUBLASLT_MATMUL_DESC_TRANSA) ((struct product *)product)->a = *(const int32_t *)value;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
    struct layout *layout = calloc(1, sizeof *layout);
    *layout = (struct layout){type, rows, columns, 1};
    *made = (cublasLtMatrixLayout_t)layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t size) {
    if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) ((struct layout *)layout)->batches = *(const int32_t *)value;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    *made = calloc(1, 64);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int *count) {
    memset(results, 0, sizeof *results);
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
                              cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
                              cublasLtMatrixLayout_t layout_c, void *d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t size,
                              cudaStream_t stream) {
    struct product *product = (struct product *)description;
    struct layout *left = (struct layout *)layout_a, *result = (struct layout *)layout_d;
    double k = product->a == CUBLAS_OP_N ? left->columns : left->rows;
    return multiply(stream, left->type, product->compute == CUBLAS_COMPUTE_32F_FAST_TF32, result->rows,
                    result->columns, k, result->batches);
}
