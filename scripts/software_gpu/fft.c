/* cuFFT's plans: 5 n log2(n) FLOPs for each transform of n points, or the bytes that are read and
 * written, whichever takes longer; the work area is as large as the larger side. */
#include "software_gpu.h"
#include <cufftXt.h>
#include <math.h>
#include <pthread.h>

#define MOST_PLANS 8192

struct plan { double flops, moved; cudaDataType type; cudaStream_t stream; int is_used; };
static struct plan plans[MOST_PLANS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static size_t bytes_of(cudaDataType type) {
    switch (type) {
    case CUDA_R_16F: case CUDA_R_16BF: return 2;
    case CUDA_C_16F: case CUDA_C_16BF: case CUDA_R_32F: return 4;
    case CUDA_C_64F: return 16;
    default: return 8;
    }
}
static int is_complex(cudaDataType type) { return type == CUDA_C_16F || type == CUDA_C_16BF || type == CUDA_C_32F || type == CUDA_C_64F; }

cufftResult cufftCreate(cufftHandle *made) {
    cufftResult result = CUFFT_ALLOC_FAILED;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < MOST_PLANS && result; i++)
        if (!plans[i].is_used) {
            plans[i] = (struct plan){.is_used = 1};
            *made = i;
            result = CUFFT_SUCCESS;
        }
    pthread_mutex_unlock(&mutex);
    return result;
}
cufftResult cufftDestroy(cufftHandle plan) {
    plans[plan].is_used = 0;
    return CUFFT_SUCCESS;
}
cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream) {
    plans[plan].stream = stream;
    return CUFFT_SUCCESS;
}
cufftResult cufftXtMakePlanMany(cufftHandle plan, int rank, long long *sizes, long long *in_embed, long long in_stride,
                                long long in_distance, cudaDataType in_type, long long *out_embed, long long out_stride,
                                long long out_distance, cudaDataType out_type, long long batch, size_t *work,
                                cudaDataType type) {
    double points = 1, half;
    for (int i = 0; i < rank; i++) points *= sizes[i];
    half = points / sizes[rank - 1] * (sizes[rank - 1] / 2 + 1); /* of a spectrum of real numbers */
    double read = batch * bytes_of(in_type) * (is_complex(out_type) || !is_complex(in_type) ? points : half);
    double written = batch * bytes_of(out_type) * (is_complex(in_type) || !is_complex(out_type) ? points : half);
    plans[plan].flops = 5 * batch * points * log2(points > 1 ? points : 2);
    plans[plan].moved = read + written;
    plans[plan].type = bytes_of(type) == 16 ? CUDA_R_64F : CUDA_R_32F;
    *work = read > written ? read : written;
    return CUFFT_SUCCESS;
}
cufftResult cufftXtExec(cufftHandle number, void *input, void *output, int direction) {
    const struct plan *plan = &plans[number];
    int device = device_of_stream(plan->stream);
    int64_t computed = price_flops(device, plan->type, 0, plan->flops), moved = price_bytes(device, plan->moved);
    struct kernel kernel = {
        .name = "regular_fft_factor", .duration_ns = computed > moved ? computed : moved, .block = {256, 1, 1},
        .grid = {fmax(1, fmin(ceil(plan->moved / 8192), INT32_MAX)), 1, 1}, .registers = 64,
    };
    return enqueue_kernel(plan->stream, &kernel) ? CUFFT_EXEC_FAILED : CUFFT_SUCCESS;
}
