/* cuDNN 9: convolutions through its graphs, recurrent layers, batch norm, CTC and the sampling of grids.
 *
 * Shapes are checked as cuDNN checks them, workspaces and durations follow the small model below, and
 * nothing is computed. A descriptor keeps copies of what it is made of, so it may outlive its parts.
 *
 * A convolution is a product of matrices that no one lays out (M x K times K x N for each group), and at
 * least as long as its tensors take to be read and written. Its engines:
 *   0  on tensor cores: half types, and TF32 since compute capability 8. Half types are computed in
 *      channels-last; what lies otherwise is copied into the workspace and back, by kernels of their own.
 *   1  without tensor cores, for every type.
 *   2  Winograd, F(2x2, 3x3): 16 in place of 36 multiplications, from tiles of four times the size of the
 *      tensors, in the workspace. Heuristics name it last, so only benchmarks take it.
 * Gradients of filters also sum in FP32, in the workspace. Recurrent layers: see `space_of`. */
#include "software_gpu.h"
#include <cudnn_adv.h>
#include <cudnn_graph.h>
#include <cudnn_ops.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIMS 8
#define NUM_ENGINES_OF_CONVOLUTIONS 3
#define WINOGRAD_FEWER 2.25 /* 36 / 16 multiplications */
#define WINOGRAD_TILES 4    /* a tile of 4x4 for each 2x2 */

struct cudnnContext { cudaStream_t stream; };

/* ---- errors ---- */

static _Thread_local char last_error[256];

static cudnnStatus_t refuse(cudnnStatus_t status, const char *why) {
    snprintf(last_error, sizeof last_error, "software GPU: %s", why);
    return status;
}
void cudnnGetLastErrorString(char *message, size_t most) { snprintf(message, most, "%s", last_error); }
const char *cudnnGetErrorString(cudnnStatus_t status) {
    static const struct { cudnnStatus_t status; const char *name; } known[] = {
        {CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS"},
        {CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
        {CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER"},
        {CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"},
        {CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT"},
        {CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"},
        {CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"},
        {CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN"},
        {CUDNN_STATUS_INTERNAL_ERROR, "CUDNN_STATUS_INTERNAL_ERROR"},
        {CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status) return known[i].name;
    return "CUDNN_UNKNOWN_STATUS";
}

/* ---- the library and its handles ---- */

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion(void) { return CUDART_VERSION; }
cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value) {
    *value = type == MAJOR_VERSION ? CUDNN_MAJOR : type == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    *handle = calloc(1, sizeof **handle);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { free(handle); return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- tensors ---- */

struct tensor { cudnnDataType_t type; int dims; int64_t size[MOST_DIMS], stride[MOST_DIMS]; int is_virtual; };

static size_t bytes_of_type(cudnnDataType_t type) {
    switch (type) {
    case CUDNN_DATA_DOUBLE: case CUDNN_DATA_INT64: case CUDNN_DATA_COMPLEX_FP32: return 8;
    case CUDNN_DATA_HALF: case CUDNN_DATA_BFLOAT16: return 2;
    case CUDNN_DATA_INT8: case CUDNN_DATA_UINT8: case CUDNN_DATA_BOOLEAN:
    case CUDNN_DATA_FP8_E4M3: case CUDNN_DATA_FP8_E5M2: return 1;
    case CUDNN_DATA_COMPLEX_FP64: return 16;
    default: return 4;
    }
}
static cudaDataType type_of(cudnnDataType_t type) {
    switch (type) {
    case CUDNN_DATA_DOUBLE: return CUDA_R_64F;
    case CUDNN_DATA_HALF: return CUDA_R_16F;
    case CUDNN_DATA_BFLOAT16: return CUDA_R_16BF;
    case CUDNN_DATA_INT8: return CUDA_R_8I;
    default: return CUDA_R_32F;
    }
}
static int is_half(cudnnDataType_t type) { return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16; }
static double elements(const struct tensor *tensor) {
    double number = tensor->dims > 0;
    for (int i = 0; i < tensor->dims; i++) number *= tensor->size[i];
    return number;
}
static double bytes(const struct tensor *tensor) { return elements(tensor) * bytes_of_type(tensor->type); }
static int is_channels_last(const struct tensor *tensor) {
    return tensor->dims < 3 || tensor->size[1] == 1 || tensor->stride[1] == 1;
}

/* ---- kernels ---- */

static cudaError_t move(cudaStream_t stream, const char *name, double moved, double threads) {
    struct kernel kernel = {.name = name, .registers = 32, .block = {256, 1, 1}};
    kernel.grid[0] = fmax(1, fmin(ceil(threads / 4 / kernel.block[0]), INT32_MAX));
    kernel.grid[1] = kernel.grid[2] = 1;
    kernel.duration_ns = price_bytes(device_of_stream(stream), moved);
    return enqueue_kernel(stream, &kernel);
}
static int64_t price(int device, cudnnDataType_t type, int on_tensor_cores, double m, double n, double k,
                     double batches, struct kernel *kernel) {
    int plain_half = is_half(type) && !on_tensor_cores;
    price_product(device, plain_half ? CUDA_R_32F : type_of(type), on_tensor_cores, m, n, k, batches, kernel);
    return kernel->duration_ns;
}
static cudaError_t multiply(cudaStream_t stream, cudnnDataType_t type, int on_tensor_cores, double m, double n,
                            double k) {
    struct kernel kernel = {0};
    price(device_of_stream(stream), type, on_tensor_cores, m, n, k, 1, &kernel);
    return enqueue_kernel(stream, &kernel);
}
static int has_tensor_cores(cudnnDataType_t type, int device) {
    int major = model_of(card_of(device))->major;
    const char *forbids = getenv("NVIDIA_TF32_OVERRIDE");
    if (type == CUDNN_DATA_FLOAT && forbids && !strcmp(forbids, "0")) return 0;
    return is_half(type) ? major >= 7 : type == CUDNN_DATA_FLOAT && major >= 8;
}
static cudnnStatus_t status_of(cudaError_t error) {
    return error ? refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorString(error)) : CUDNN_STATUS_SUCCESS;
}

/* ---- graphs: what is to be done, and by which engine ---- */

struct window { int dims; int64_t stride[MOST_DIMS], before[MOST_DIMS], after[MOST_DIMS], dilation[MOST_DIMS]; };
enum pass { NO_CONVOLUTION, FORWARD, GRADIENT_OF_DATA, GRADIENT_OF_FILTER };
struct work {
    enum pass pass;
    struct tensor x, w, y;  /* of a convolution */
    struct window window;
    struct tensor a, b;     /* of a product of matrices, or queries and keys */
    double products;        /* FLOPs of matrix products that are no convolutions */
    double moved;           /* bytes of other tensors that are read or written */
    cudnnDataType_t type;   /* of those products */
};
struct descriptor {
    cudnnBackendDescriptorType_t type;
    int is_final;
    struct tensor tensor;
    struct work work;
    int engine;
    void *workspace;
    int64_t device;
};

static double groups_of(const struct work *work) { return work->x.size[1] / work->w.size[1]; }
static double flops_of(const struct work *work) {
    double each = 2;
    for (int i = 1; i < work->w.dims; i++) each *= work->w.size[i];
    return each * elements(&work->y);
}
static cudnnStatus_t check(const struct work *work) {
    const struct tensor *x = &work->x, *w = &work->w, *y = &work->y;
    if (x->dims < 3 || x->dims != w->dims || x->dims != y->dims || work->window.dims != x->dims - 2)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a convolution's tensors differ in their dimensions");
    int64_t groups = w->size[1] > 0 ? x->size[1] / w->size[1] : 0;
    if (groups < 1 || x->size[1] != groups * w->size[1] || w->size[0] % groups)
        return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "channels do not fit the filters");
    if (x->size[0] != y->size[0] || y->size[1] != w->size[0])
        return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a convolution's output does not fit its input");
    for (int i = 0; i < work->window.dims; i++) {
        int64_t reach = work->window.dilation[i] * (w->size[i + 2] - 1) + 1;
        int64_t room = x->size[i + 2] + work->window.before[i] + work->window.after[i] - reach;
        if (room < 0 || work->window.stride[i] < 1 || y->size[i + 2] != room / work->window.stride[i] + 1)
            return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a convolution's output has another size");
    }
    return CUDNN_STATUS_SUCCESS;
}
static int can_wind(const struct work *work) { /* Winograd */
    if (work->pass == GRADIENT_OF_FILTER || work->window.dims != 2 || groups_of(work) != 1) return 0;
    for (int i = 0; i < 2; i++)
        if (work->w.size[i + 2] != 3 || work->window.stride[i] != 1 || work->window.dilation[i] != 1) return 0;
    return is_half(work->x.type) || work->x.type == CUDNN_DATA_FLOAT;
}
static int engines_for(const struct work *work, int device, int found[NUM_ENGINES_OF_CONVOLUTIONS]) {
    int number = 0;
    if (has_tensor_cores(work->pass ? work->x.type : work->type, device)) found[number++] = 0;
    if (work->pass || !number) found[number++] = 1;
    if (work->pass && can_wind(work)) found[number++] = 2;
    return number;
}
static int notes_of(const struct descriptor *engine, cudnnBackendNumericalNote_t *notes) {
    if (engine->engine == 1) return 0;
    if (notes) *notes = engine->engine == 2 ? CUDNN_NUMERICAL_NOTE_WINOGRAD : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return 1;
}
static double copied(const struct work *work, const struct tensor *tensor, int engine) {
    int is_to_copy = engine == 0 && is_half(work->x.type) && !is_channels_last(tensor);
    return is_to_copy ? ceil(bytes(tensor) / 512) * 512 : 0;
}
static int64_t workspace_of(const struct work *work, int engine) {
    if (!work->pass) return 0;
    double size = copied(work, &work->x, engine) + copied(work, &work->w, engine) + copied(work, &work->y, engine);
    if (engine == 2) size += WINOGRAD_TILES * (bytes(&work->x) + bytes(&work->y));
    if (work->pass == GRADIENT_OF_FILTER) size += 4 * elements(&work->w);
    return size;
}
static const char *name_of(const struct work *work, int engine) {
    static const char *const names[3][4] = {
        {"sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_"
         "tensor16x8x16_execute_kernel__5x_cudnn",
         "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_"
         "g1_tensor16x8x16_execute_kernel__5x_cudnn",
         "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_"
         "g1_tensor16x8x8_execute_kernel__5x_cudnn",
         "implicit_convolve_sgemm"},
        {"sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_"
         "tensor16x8x16_execute_kernel__5x_cudnn",
         "sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_"
         "g1_tensor16x8x16_execute_kernel__5x_cudnn",
         "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_"
         "g1_tensor16x8x8_execute_kernel__5x_cudnn",
         "dgrad_engine_convolve_sgemm"},
        {"sm80_xmma_wgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_"
         "tensor16x8x16_execute_kernel__5x_cudnn",
         "sm80_xmma_wgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_"
         "g1_tensor16x8x16_execute_kernel__5x_cudnn",
         "sm80_xmma_wgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_"
         "g1_tensor16x8x8_execute_kernel__5x_cudnn",
         "wgrad_alg0_engine_convolve_sgemm"},
    };
    if (engine == 2) return "cudnn_winograd_conv_128x64_kernel";
    cudnnDataType_t type = work->x.type;
    int column = engine == 1 ? 3 : type == CUDNN_DATA_HALF ? 0 : type == CUDNN_DATA_BFLOAT16 ? 1 : 2;
    return names[work->pass - 1][column];
}
static cudaError_t convolve(const struct work *work, int engine, cudaStream_t stream) {
    const struct tensor *x = &work->x, *w = &work->w, *y = &work->y;
    const struct tensor *from[2] = {work->pass == GRADIENT_OF_DATA ? y : x, work->pass == GRADIENT_OF_FILTER ? y : w};
    const struct tensor *to = work->pass == FORWARD ? y : work->pass == GRADIENT_OF_DATA ? x : w;
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < 2; i++)
        if (copied(work, from[i], engine) && !error)
            error = move(stream, "_ZN5cudnn3ops16nchwToNhwcKernelEv", 2 * bytes(from[i]), elements(from[i]));
    double groups = groups_of(work), flops = flops_of(work) / (engine == 2 ? WINOGRAD_FEWER : 1);
    double m = elements(to) / to->size[to == w ? 0 : 1], n = to == w ? w->size[0] / groups : to->size[1] / groups;
    if (to == w) { /* filters x their reach, summed over all that is read */
        m = w->size[0] / groups;
        n = elements(w) / w->size[0];
    }
    struct kernel kernel = {0};
    int device = device_of_stream(stream);
    price(device, x->type, engine == 0, m, n, flops / (2 * m * n * groups), groups, &kernel);
    int64_t read = price_bytes(device, bytes(x) + bytes(w) + bytes(y));
    if (kernel.duration_ns < read) kernel.duration_ns = read;
    kernel.name = name_of(work, engine);
    if (!error) error = enqueue_kernel(stream, &kernel);
    if (copied(work, to, engine) && !error)
        error = move(stream, "_ZN5cudnn3ops16nhwcToNchwKernelEv", 2 * bytes(to), elements(to));
    return error;
}
static cudaError_t compute(const struct work *work, int engine, cudaStream_t stream) {
    if (work->pass) {
        cudaError_t error = convolve(work, engine, stream);
        if (error || !work->moved) return error;
        return move(stream, "_ZN5cudnn3ops15pointwiseKernelEv", work->moved, work->moved / 4);
    }
    double rows = work->a.dims > 1 ? elements(&work->a) / work->a.size[work->a.dims - 1] : 1;
    struct kernel kernel = {
        .name = "cudnn_generated_fort_native_sdpa_sm80_flash_kernel", .registers = 128, .block = {128, 1, 1},
        .grid = {fmax(1, fmin(ceil(rows / 128), INT32_MAX)), 1, 1}, .shared_dynamic = 64 << 10,
    };
    int device = device_of_stream(stream);
    int64_t read = price_bytes(device, work->moved);
    kernel.duration_ns = price_flops(device, type_of(work->type), engine == 0, work->products);
    if (kernel.duration_ns < read) kernel.duration_ns = read;
    return enqueue_kernel(stream, &kernel);
}

/* ---- graphs: descriptors ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
    struct descriptor *descriptor = calloc(1, sizeof *descriptor);
    descriptor->type = type;
    *made = descriptor;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

static int take_sizes(int64_t to[MOST_DIMS], int *dims, int64_t count, const void *values) {
    if (count < 0 || count > MOST_DIMS) return 0;
    memcpy(to, values, count * sizeof *to);
    if (dims) *dims = count;
    return 1;
}
/* What a part adds to the work of an operation that is no convolution. */
static void add_part(struct work *work, cudnnBackendAttributeName_t name, const struct descriptor *part) {
    if (part->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) return;
    if (!part->tensor.is_virtual) work->moved += bytes(&part->tensor);
    switch ((int)name) {
    case CUDNN_ATTR_OPERATION_MATMUL_ADESC: case CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC:
    case CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC: work->a = part->tensor; break;
    case CUDNN_ATTR_OPERATION_MATMUL_BDESC: case CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC:
    case CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC: work->b = part->tensor; break;
    }
}
static cudnnStatus_t set_of_operation(struct descriptor *to, cudnnBackendAttributeName_t name,
                                      const struct descriptor *part) {
    struct work *work = &to->work;
    switch (name) {
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC: work->window = part->work.window; break;
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X: work->x = part->tensor; break;
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW: work->w = part->tensor; break;
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY: work->y = part->tensor; break;
    default: add_part(work, name, part);
    }
    return CUDNN_STATUS_SUCCESS;
}
static void join(struct work *all, const struct work *one) {
    double products = all->products + one->products, moved = all->moved + one->moved;
    if (one->pass || (!all->pass && one->products)) *all = *one;
    all->products = products;
    all->moved = moved;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t opaque, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    struct descriptor *to = opaque;
    if (!to || (count > 0 && !values)) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute is NULL");
    if (to->is_final) return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor that is final was changed");
    struct window *window = &to->work.window;
    int fits = 1;
    switch (name) {
    case CUDNN_ATTR_TENSOR_DATA_TYPE: to->tensor.type = *(const cudnnDataType_t *)values; break;
    case CUDNN_ATTR_TENSOR_DIMENSIONS: fits = take_sizes(to->tensor.size, &to->tensor.dims, count, values); break;
    case CUDNN_ATTR_TENSOR_STRIDES: fits = take_sizes(to->tensor.stride, NULL, count, values); break;
    case CUDNN_ATTR_TENSOR_IS_VIRTUAL: to->tensor.is_virtual = *(const char *)values; break;
    case CUDNN_ATTR_CONVOLUTION_DILATIONS: fits = take_sizes(window->dilation, NULL, count, values); break;
    case CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES: fits = take_sizes(window->stride, NULL, count, values); break;
    case CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS: fits = take_sizes(window->before, NULL, count, values); break;
    case CUDNN_ATTR_CONVOLUTION_POST_PADDINGS: fits = take_sizes(window->after, NULL, count, values); break;
    case CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS: window->dims = *(const int64_t *)values; break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: to->engine = *(const int64_t *)values; break;
    case CUDNN_ATTR_VARIANT_PACK_WORKSPACE: to->workspace = *(void *const *)values; break;
    case CUDNN_ATTR_DEVICEPROP_DEVICE_ID: to->device = *(const int32_t *)values; break;
    default:
        if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) break; /* nothing that the model asks for */
        for (int64_t i = 0; i < count; i++) {
            const struct descriptor *part = ((void *const *)values)[i];
            if (!part) continue;
            if (!part->is_final) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a part is not final");
            switch (name) {
            case CUDNN_ATTR_OPERATIONGRAPH_OPS: join(&to->work, &part->work); break;
            case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
            case CUDNN_ATTR_ENGINE_OPERATION_GRAPH: to->work = part->work; break;
            case CUDNN_ATTR_ENGINECFG_ENGINE:
            case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: to->work = part->work; to->engine = part->engine; break;
            default: set_of_operation(to, name, part);
            }
        }
    }
    return fits ? CUDNN_STATUS_SUCCESS : refuse(CUDNN_STATUS_BAD_PARAM, "more dimensions than cuDNN has");
}
static double product_of(const struct work *work) {
    if (work->a.dims < 2 || work->a.dims != work->b.dims) return 0;
    return 2 * elements(&work->a) * work->b.size[work->b.dims - 1];
}
static double attention_of(const struct work *work) { /* scores and their use, of queries and keys */
    if (work->a.dims != 4 || work->b.dims != 4) return 0;
    return 4 * elements(&work->a) * work->b.size[2];
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t opaque) {
    struct descriptor *descriptor = opaque;
    struct work *work = &descriptor->work;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    switch (descriptor->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: work->pass = FORWARD; break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: work->pass = GRADIENT_OF_DATA; break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: work->pass = GRADIENT_OF_FILTER; break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: work->products = product_of(work); break;
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR: work->products = attention_of(work); break;
    case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR: work->products = 2.5 * attention_of(work); break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
        int found[NUM_ENGINES_OF_CONVOLUTIONS], number = engines_for(work, current_device(), found), is_there = 0;
        for (int i = 0; i < number; i++) is_there |= found[i] == descriptor->engine;
        if (!is_there) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such engine for this graph");
    }
    default: break;
    }
    if (work->pass && descriptor->type < CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) status = check(work);
    if (work->products && !work->pass) work->type = work->a.type;
    descriptor->is_final = !status;
    return status;
}

static cudnnStatus_t give(int64_t there, int64_t asked, int64_t *count, void *to, const void *values, size_t size) {
    if (to && there > asked) there = asked;
    if (count) *count = there;
    if (to && values) memcpy(to, values, there * size);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const opaque, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t asked, int64_t *count, void *to) {
    const struct descriptor *of = opaque;
    int found[NUM_ENGINES_OF_CONVOLUTIONS];
    int64_t number;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        number = engines_for(&of->work, current_device(), found);
        if (to && number > asked) number = asked;
        for (int64_t i = 0; to && i < number; i++) {
            struct descriptor *result = ((void **)to)[i];
            result->work = of->work;
            result->engine = found[i];
            result->is_final = 1;
        }
        if (count) *count = number;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
        number = NUM_ENGINES_OF_CONVOLUTIONS;
        return give(1, asked, count, to, &number, sizeof number);
    case CUDNN_ATTR_ENGINECFG_ENGINE: case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG:
        if (to && asked > 0) {
            struct descriptor *part = *(void **)to;
            part->work = of->work;
            part->engine = of->engine;
            part->is_final = 1;
        }
        if (count) *count = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        number = of->engine;
        return give(1, asked, count, to, &number, sizeof number);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
        cudnnBackendNumericalNote_t note;
        number = notes_of(of, &note);
        return give(number, asked, count, to, &note, sizeof note);
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
        number = workspace_of(&of->work, of->engine);
        return give(1, asked, count, to, &number, sizeof number);
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED: {
        int32_t shared = 64 << 10;
        return give(1, asked, count, to, &shared, sizeof shared);
    }
    case CUDNN_ATTR_TENSOR_DIMENSIONS:
        return give(of->tensor.dims, asked, count, to, of->tensor.size, sizeof *of->tensor.size);
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
    case CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION: return give(2, asked, count, to, "{}", 1);
    case CUDNN_ATTR_ENGINE_KNOB_INFO: case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: case CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO:
    case CUDNN_ATTR_ENGINE_LAYOUT_INFO: return give(0, asked, count, to, NULL, 0);
    default: return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such attribute is modelled");
    }
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    const struct descriptor *done = plan, *with = pack;
    if (!done->is_final || !with->is_final) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan is not final");
    if (workspace_of(&done->work, done->engine) && !with->workspace)
        return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a plan lacks its workspace");
    return status_of(compute(&done->work, done->engine, handle->stream));
}

/* ---- descriptors of single calls ---- */

#define CREATE_AND_DESTROY(Kind, type_, struct_)                                                           \
    cudnnStatus_t cudnnCreate##Kind##Descriptor(type_ *made) {                                             \
        *made = calloc(1, sizeof(struct struct_));                                                         \
        return CUDNN_STATUS_SUCCESS;                                                                       \
    }                                                                                                      \
    cudnnStatus_t cudnnDestroy##Kind##Descriptor(type_ one) { free(one); return CUDNN_STATUS_SUCCESS; }

struct cudnnTensorStruct { struct tensor is; };
struct cudnnFilterStruct { struct tensor is; cudnnTensorFormat_t format; };
struct cudnnActivationStruct { cudnnActivationMode_t mode; };
struct cudnnSpatialTransformerStruct { struct tensor is; };
struct cudnnDropoutStruct { float probability; };
struct cudnnRNNDataStruct { cudnnDataType_t type; int64_t length, batch, width, tokens; };
struct cudnnCTCLossStruct { int most_labels; };
struct cudnnRNNStruct {
    cudnnRNNAlgo_t algorithm;
    cudnnRNNMode_t mode;
    cudnnRNNBiasMode_t bias;
    cudnnDataType_t type;
    int on_tensor_cores;
    int64_t input, hidden, projected, layers, directions;
    float dropout;
};
CREATE_AND_DESTROY(Tensor, cudnnTensorDescriptor_t, cudnnTensorStruct)
CREATE_AND_DESTROY(Filter, cudnnFilterDescriptor_t, cudnnFilterStruct)
CREATE_AND_DESTROY(Activation, cudnnActivationDescriptor_t, cudnnActivationStruct)
CREATE_AND_DESTROY(SpatialTransformer, cudnnSpatialTransformerDescriptor_t, cudnnSpatialTransformerStruct)
CREATE_AND_DESTROY(Dropout, cudnnDropoutDescriptor_t, cudnnDropoutStruct)
CREATE_AND_DESTROY(RNN, cudnnRNNDescriptor_t, cudnnRNNStruct)
CREATE_AND_DESTROY(RNNData, cudnnRNNDataDescriptor_t, cudnnRNNDataStruct)
CREATE_AND_DESTROY(CTCLoss, cudnnCTCLossDescriptor_t, cudnnCTCLossStruct)

static cudnnStatus_t set_tensor(struct tensor *to, cudnnDataType_t type, int dims, const int size[], const int stride[]) {
    if (dims < 1 || dims > MOST_DIMS) return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor of so many dimensions");
    to->type = type;
    to->dims = dims;
    for (int i = dims - 1, packed = 1; i >= 0; packed *= size[i--]) {
        to->size[i] = size[i];
        to->stride[i] = stride ? stride[i] : packed;
    }
    return CUDNN_STATUS_SUCCESS;
}
static void get_tensor(const struct tensor *from, int asked, cudnnDataType_t *type, int *dims, int size[], int stride[]) {
    *type = from->type;
    *dims = from->dims;
    for (int i = 0; i < asked && i < from->dims; i++) {
        size[i] = from->size[i];
        if (stride) stride[i] = from->stride[i];
    }
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t to, cudnnDataType_t type, int dims, const int size[],
                                         const int stride[]) {
    return set_tensor(&to->is, type, dims, size, stride);
}
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t from, int asked, cudnnDataType_t *type, int *dims,
                                         int size[], int stride[]) {
    get_tensor(&from->is, asked, type, dims, size, stride);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t to, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int dims, const int size[]) {
    to->format = format;
    return set_tensor(&to->is, type, dims, size, NULL);
}
cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t from, int asked, cudnnDataType_t *type,
                                         cudnnTensorFormat_t *format, int *dims, int size[]) {
    *format = from->format;
    get_tensor(&from->is, asked, type, dims, size, NULL);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t to, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t nans, double coefficient) {
    to->mode = mode;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- batch norm: no workspace; a training pass reads its input twice ---- */

static cudnnStatus_t normalize(cudnnHandle_t handle, const char *name, const cudnnTensorDescriptor_t x,
                               const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t weights, double times) {
    if (elements(&x->is) != elements(&y->is) || elements(&weights->is) != x->is.size[1])
        return refuse(CUDNN_STATUS_BAD_PARAM, "batch norm of tensors that do not fit each other");
    return status_of(move(handle->stream, name, times * bytes(&x->is), elements(&x->is)));
}
cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t z, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t weights,
    const cudnnActivationDescriptor_t activation, size_t *size) {
    *size = 0;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t weights,
    const cudnnActivationDescriptor_t activation, size_t *size) {
    *size = 0;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t x, size_t *size) {
    *size = 0;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t x, const void *x_data, const cudnnTensorDescriptor_t z, const void *z_data,
    const cudnnTensorDescriptor_t y, void *y_data, const cudnnTensorDescriptor_t weights, const void *scale,
    const void *bias, double factor, void *running_mean, void *running_variance, double epsilon, void *mean,
    void *inverse, cudnnActivationDescriptor_t activation, void *workspace, size_t workspace_size, void *reserve,
    size_t reserve_size) {
    return normalize(handle, "_ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWEv", x, y, weights, 3);
}
cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t x, const void *x_data, const cudnnTensorDescriptor_t y, void *y_data,
    const cudnnTensorDescriptor_t weights, const void *scale, const void *bias, const void *mean,
    const void *variance, double epsilon) {
    return normalize(handle, "_ZN5cudnn26bn_fw_inf_1C11_kernel_NCHWEv", x, y, weights, 2);
}
cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const void *alpha_data,
    const void *beta_data, const void *alpha_weights, const void *beta_weights, const cudnnTensorDescriptor_t x,
    const void *x_data, const cudnnTensorDescriptor_t y, const void *y_data, const cudnnTensorDescriptor_t dy,
    const void *dy_data, const cudnnTensorDescriptor_t dz, void *dz_data, const cudnnTensorDescriptor_t dx,
    void *dx_data, const cudnnTensorDescriptor_t weights, const void *scale, const void *bias, void *d_scale,
    void *d_bias, double epsilon, const void *mean, const void *inverse, cudnnActivationDescriptor_t activation,
    void *workspace, size_t workspace_size, void *reserve, size_t reserve_size) {
    return normalize(handle, "_ZN5cudnn22bn_bw_1C11_kernel_NCHWEv", x, dx, weights, 5);
}

/* ---- dropout of recurrent layers ---- */

#define STATE_BYTES 64 /* of one thread's generator */

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *size) {
    const struct model *model = model_of(card_of(current_device()));
    *size = (size_t)model->sms * model->threads_per_sm * STATE_BYTES;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t to, cudnnHandle_t handle, float probability,
                                            void *states, size_t size, unsigned long long seed) {
    to->probability = probability;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t to, cudnnHandle_t handle, float probability, void *states,
                                        size_t size, unsigned long long seed) {
    to->probability = probability;
    if (!states) return CUDNN_STATUS_SUCCESS;
    size_t needed;
    cudnnDropoutGetStatesSize(handle, &needed);
    if (size < needed) return refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "too little room for dropout's states");
    return status_of(move(handle->stream, "_ZN5cudnn19init_dropout_statesEv", size, (double)size / STATE_BYTES));
}

/* ---- recurrent layers ---- */

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t to, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction,
                                       cudnnRNNInputMode_t input_mode, cudnnDataType_t type, cudnnDataType_t inner_type,
                                       cudnnMathType_t math, int32_t input, int32_t hidden, int32_t projected,
                                       int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
    if (input < 1 || hidden < 1 || layers < 1 || projected < 0)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a recurrent layer without inputs, units or layers");
    if (projected && projected != hidden && mode != CUDNN_LSTM)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "only LSTM has projections");
    int has_cores = math != CUDNN_FMA_MATH && has_tensor_cores(type, current_device());
    *to = (struct cudnnRNNStruct){
        algorithm, mode, bias, type, has_cores, input, hidden, projected == hidden ? 0 : projected, layers,
        direction == CUDNN_BIDIRECTIONAL ? 2 : 1, dropout ? dropout->probability : 0,
    };
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t to, cudnnDataType_t type, cudnnRNNDataLayout_t layout,
                                        int length, int batch, int width, const int lengths[], void *fill) {
    *to = (struct cudnnRNNDataStruct){type, length, batch, width, 0};
    for (int i = 0; i < batch; i++) {
        if (lengths[i] < 0 || lengths[i] > length)
            return refuse(CUDNN_STATUS_BAD_PARAM, "a sequence is longer than the longest");
        to->tokens += lengths[i];
    }
    return CUDNN_STATUS_SUCCESS;
}
static int64_t gates_of(cudnnRNNDescriptor_t rnn) { return rnn->mode == CUDNN_LSTM ? 4 : rnn->mode == CUDNN_GRU ? 3 : 1; }
static int64_t given_on(cudnnRNNDescriptor_t rnn) { return rnn->projected ? rnn->projected : rnn->hidden; }
static int64_t input_of(cudnnRNNDescriptor_t rnn, int64_t layer) { return layer ? given_on(rnn) * rnn->directions : rnn->input; }
static int64_t biases_of(cudnnRNNDescriptor_t rnn) {
    return rnn->bias == CUDNN_RNN_NO_BIAS ? 0 : rnn->bias == CUDNN_RNN_DOUBLE_BIAS ? 2 : 1;
}
/* Elements of the matrices of one layer in one direction. */
static int64_t matrices_of(cudnnRNNDescriptor_t rnn, int64_t layer) {
    int64_t gates = gates_of(rnn) * rnn->hidden * (input_of(rnn, layer) + given_on(rnn));
    return gates + rnn->projected * rnn->hidden;
}
static int64_t matrices_before(cudnnRNNDescriptor_t rnn, int64_t pseudo_layer) {
    int64_t number = 0;
    for (int64_t i = 0; i < pseudo_layer; i++) number += matrices_of(rnn, i / rnn->directions);
    return number;
}
static size_t weights_of(cudnnRNNDescriptor_t rnn) {
    int64_t all = rnn->layers * rnn->directions;
    return (matrices_before(rnn, all) + all * biases_of(rnn) * gates_of(rnn) * rnn->hidden) * bytes_of_type(rnn->type);
}
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t *size) {
    *size = weights_of(rnn);
    return CUDNN_STATUS_SUCCESS;
}
/* All matrices lie before all biases; those of a layer's inputs before those of its state. */
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t pseudo_layer, size_t size,
                                      const void *space, int32_t which, cudnnTensorDescriptor_t matrix,
                                      void **matrix_at, cudnnTensorDescriptor_t bias, void **bias_at) {
    int64_t gates = gates_of(rnn), hidden = rnn->hidden, all = rnn->layers * rnn->directions;
    if (pseudo_layer < 0 || pseudo_layer >= all || which < 0 || which > 2 * gates || size < weights_of(rnn))
        return refuse(CUDNN_STATUS_BAD_PARAM, "no such weights in a recurrent layer");
    int64_t inputs = input_of(rnn, pseudo_layer / rnn->directions), unit = bytes_of_type(rnn->type);
    int64_t rows = hidden, columns = which < gates ? inputs : given_on(rnn);
    int64_t place = matrices_before(rnn, pseudo_layer) + (which < gates ? which * hidden * inputs
                                                          : gates * hidden * inputs + (which - gates) * hidden * columns);
    int has_matrix = which < 2 * gates || rnn->projected;
    if (which == 2 * gates) {
        rows = rnn->projected;
        columns = hidden;
    }
    if (matrix) {
        set_tensor(&matrix->is, rnn->type, 3, (int[]){1, rows, columns}, NULL);
        if (!has_matrix) matrix->is.dims = 0;
    }
    if (matrix_at) *matrix_at = has_matrix ? (char *)space + place * unit : NULL;
    int64_t biases = biases_of(rnn);
    int has_bias = which < biases * gates;
    place = matrices_before(rnn, all) + (pseudo_layer * biases * gates + which) * hidden;
    if (bias) {
        set_tensor(&bias->is, rnn->type, 3, (int[]){1, hidden, 1}, NULL);
        if (!has_bias) bias->is.dims = 0;
    }
    if (bias_at) *bias_at = has_bias ? (char *)space + place * unit : NULL;
    return CUDNN_STATUS_SUCCESS;
}
/* Workspace: the gates of one layer before they are opened. Reserve, of each layer and token: its gates,
 * and of LSTM the cell and the output, of GRU the output and what the state adds to the new one, of plain
 * layers the output; and between layers a byte for each that is dropped or not. */
static void space_of(cudnnRNNDescriptor_t rnn, cudnnRNNDataDescriptor_t x, size_t *workspace, size_t *reserve) {
    size_t units = x->tokens * rnn->directions * rnn->hidden, unit = bytes_of_type(rnn->type);
    *workspace = units * gates_of(rnn) * unit;
    *reserve = units * rnn->layers * (gates_of(rnn) + (gates_of(rnn) > 1 ? 2 : 1)) * unit;
    if (rnn->dropout > 0) *reserve += units * (rnn->layers - 1);
}
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t *workspace, size_t *reserve) {
    size_t of_work, kept;
    space_of(rnn, x, &of_work, &kept);
    if (workspace) *workspace = of_work;
    if (reserve) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? kept : 0;
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t check_rnn(cudnnRNNDescriptor_t rnn, cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y,
                               cudnnTensorDescriptor_t h, size_t weights, size_t workspace, size_t reserve, int trains) {
    if (x->width != rnn->input || y->width != given_on(rnn) * rnn->directions || x->tokens != y->tokens ||
        x->batch != y->batch || x->length != y->length)
        return refuse(CUDNN_STATUS_BAD_PARAM, "sequences do not fit the recurrent layer");
    const int64_t *state = h->is.size;
    if (h->is.dims < 3 || state[0] != rnn->layers * rnn->directions || state[1] != x->batch || state[2] != given_on(rnn))
        return refuse(CUDNN_STATUS_BAD_PARAM, "the state does not fit the recurrent layer");
    size_t needed, kept;
    space_of(rnn, x, &needed, &kept);
    if (weights < weights_of(rnn) || workspace < needed || (trains && reserve < kept))
        return refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "too little room for a recurrent layer");
    return CUDNN_STATUS_SUCCESS;
}
/* The steps of one layer: each a product and what is done with it, two kernels; or one that persists. */
static cudaError_t walk(cudnnRNNDescriptor_t rnn, cudnnRNNDataDescriptor_t x, cudaStream_t stream, const char *names[2]) {
    int64_t width = gates_of(rnn) * rnn->hidden, unit = bytes_of_type(rnn->type);
    double each = fmax(1, (double)x->tokens / x->length) * rnn->directions; /* sequences at a step, on average */
    double moved = 2 * each * (width + 2 * rnn->hidden) * unit;
    cudaError_t error = cudaSuccess;
    if (rnn->algorithm != CUDNN_RNN_ALGO_STANDARD) {
        struct kernel kernel = {0};
        int device = device_of_stream(stream);
        price(device, rnn->type, rnn->on_tensor_cores, each, width, given_on(rnn), 1, &kernel);
        kernel.duration_ns = x->length * (kernel.duration_ns + price_bytes(device, moved));
        kernel.name = names[1];
        return enqueue_kernel(stream, &kernel);
    }
    for (int64_t i = 0; i < x->length && !error; i++) {
        error = multiply(stream, rnn->type, rnn->on_tensor_cores, each, width, given_on(rnn));
        if (!error) error = move(stream, names[0], moved, each * rnn->hidden);
    }
    return error;
}
static cudaError_t multiply_tokens(cudnnRNNDescriptor_t rnn, cudaStream_t stream, double m, double n, double k) {
    return multiply(stream, rnn->type, rnn->on_tensor_cores, m, n, k);
}
cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                              const int32_t lengths[], cudnnRNNDataDescriptor_t x, const void *x_data,
                              cudnnRNNDataDescriptor_t y, void *y_data, cudnnTensorDescriptor_t h, const void *hx,
                              void *hy, cudnnTensorDescriptor_t c, const void *cx, void *cy, size_t weights,
                              const void *weight_data, size_t workspace, void *work_data, size_t reserve,
                              void *reserve_data) {
    static const char *names[2] = {"_ZN5cudnn17elemWiseRNNcellFpEv",
                                   "_ZN5cudnn19RNN_blockPersist_fpEv"};
    cudnnStatus_t status = check_rnn(rnn, x, y, h, weights, workspace, reserve, mode == CUDNN_FWD_MODE_TRAINING);
    int64_t width = gates_of(rnn) * rnn->hidden * rnn->directions;
    for (int64_t layer = 0; layer < rnn->layers && !status; layer++) {
        cudaError_t error = multiply_tokens(rnn, handle->stream, x->tokens, width, input_of(rnn, layer));
        status = status_of(error ? error : walk(rnn, x, handle->stream, names));
    }
    return status;
}
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t lengths[],
                                      cudnnRNNDataDescriptor_t y, const void *y_data, const void *dy,
                                      cudnnRNNDataDescriptor_t x, void *dx, cudnnTensorDescriptor_t h, const void *hx,
                                      const void *dhy, void *dhx, cudnnTensorDescriptor_t c, const void *cx,
                                      const void *dcy, void *dcx, size_t weights, const void *weight_data,
                                      size_t workspace, void *work_data, size_t reserve, void *reserve_data) {
    static const char *names[2] = {"_ZN5cudnn17elemWiseRNNcellBpEv",
                                   "_ZN5cudnn19RNN_blockPersist_bpEv"};
    cudnnStatus_t status = check_rnn(rnn, x, y, h, weights, workspace, reserve, 1);
    int64_t width = gates_of(rnn) * rnn->hidden * rnn->directions;
    for (int64_t layer = rnn->layers - 1; layer >= 0 && !status; layer--) {
        cudaError_t error = walk(rnn, x, handle->stream, names);
        status = status_of(error ? error : multiply_tokens(rnn, handle->stream, x->tokens, input_of(rnn, layer), width));
    }
    return status;
}
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t mode,
                                         const int32_t lengths[], cudnnRNNDataDescriptor_t x, const void *x_data,
                                         cudnnTensorDescriptor_t h, const void *hx, cudnnRNNDataDescriptor_t y,
                                         const void *y_data, size_t weights, void *weight_data, size_t workspace,
                                         void *work_data, size_t reserve, void *reserve_data) {
    cudnnStatus_t status = check_rnn(rnn, x, y, h, weights, workspace, reserve, 1);
    int64_t width = gates_of(rnn) * rnn->hidden * rnn->directions;
    for (int64_t layer = 0; layer < rnn->layers && !status; layer++) {
        double inputs = input_of(rnn, layer) + given_on(rnn);
        status = status_of(multiply_tokens(rnn, handle->stream, width, inputs, x->tokens));
    }
    return status;
}

/* ---- CTC ---- */

cudnnStatus_t cudnnSetCTCLossDescriptorEx(cudnnCTCLossDescriptor_t to, cudnnDataType_t type,
                                          cudnnLossNormalizationMode_t mode, cudnnNanPropagation_t nans) {
    to->most_labels = 256; /* the most that cuDNN takes */
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetCTCLossDescriptor_v9(cudnnCTCLossDescriptor_t to, cudnnDataType_t type,
                                           cudnnLossNormalizationMode_t mode, cudnnCTCGradMode_t gradients, int labels) {
    to->most_labels = labels;
    return CUDNN_STATUS_SUCCESS;
}
/* The probabilities of all ways through each text, from both ends. */
static size_t room_of_ctc(cudnnTensorDescriptor_t probabilities, cudnnCTCLossDescriptor_t loss) {
    const int64_t *size = probabilities->is.size; /* length, batch, classes */
    return 2 * size[0] * size[1] * (2 * loss->most_labels + 1) * sizeof(float);
}
cudnnStatus_t cudnnGetCTCLossWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t probabilities,
                                           const cudnnTensorDescriptor_t gradients, const int *labels, const int *of_labels,
                                           const int *of_inputs, cudnnCTCLossAlgo_t algorithm,
                                           cudnnCTCLossDescriptor_t loss, size_t *size) {
    *size = room_of_ctc(probabilities, loss);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetCTCLossWorkspaceSize_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t algorithm,
                                              cudnnCTCLossDescriptor_t loss, const cudnnTensorDescriptor_t probabilities,
                                              const cudnnTensorDescriptor_t gradients, size_t *size) {
    *size = room_of_ctc(probabilities, loss);
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t align_texts(cudnnHandle_t handle, cudnnTensorDescriptor_t probabilities, cudnnCTCLossDescriptor_t loss,
                                 size_t workspace) {
    size_t room = room_of_ctc(probabilities, loss);
    if (workspace < room) return refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "too little room for CTC");
    double moved = 2 * bytes(&probabilities->is) + 2.0 * room;
    return status_of(move(handle->stream, "_ZN5cudnn11ctc_loss_v8Ev", moved, probabilities->is.size[1] * 256.0));
}
cudnnStatus_t cudnnCTCLoss(cudnnHandle_t handle, const cudnnTensorDescriptor_t probabilities, const void *data,
                           const int labels[], const int of_labels[], const int of_inputs[], void *costs,
                           const cudnnTensorDescriptor_t gradients, void *gradient_data, cudnnCTCLossAlgo_t algorithm,
                           cudnnCTCLossDescriptor_t loss, void *workspace, size_t size) {
    return align_texts(handle, probabilities, loss, size);
}
cudnnStatus_t cudnnCTCLoss_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t algorithm, cudnnCTCLossDescriptor_t loss,
                              const cudnnTensorDescriptor_t probabilities, const void *data, const int labels[],
                              const int of_labels[], const int of_inputs[], void *costs,
                              const cudnnTensorDescriptor_t gradients, void *gradient_data, size_t size,
                              void *workspace) {
    return align_texts(handle, probabilities, loss, size);
}

/* ---- grids that are sampled ---- */

cudnnStatus_t cudnnSetSpatialTransformerNdDescriptor(cudnnSpatialTransformerDescriptor_t to, cudnnSamplerType_t sampler,
                                                     cudnnDataType_t type, const int dims, const int size[]) {
    return set_tensor(&to->is, type, dims, size, NULL);
}
static cudnnStatus_t sample(cudnnHandle_t handle, const char *name, const struct tensor *tensor, double times) {
    return status_of(move(handle->stream, name, times * bytes(tensor), elements(tensor)));
}
cudnnStatus_t cudnnSpatialTfGridGeneratorForward(cudnnHandle_t handle, const cudnnSpatialTransformerDescriptor_t of,
                                                 const void *theta, void *grid) {
    return sample(handle, "_ZN5cudnn14grid_generatorEv", &of->is, 1);
}
cudnnStatus_t cudnnSpatialTfGridGeneratorBackward(cudnnHandle_t handle, const cudnnSpatialTransformerDescriptor_t of,
                                                  const void *grid, void *theta) {
    return sample(handle, "_ZN5cudnn17grid_generator_bwEv", &of->is, 1);
}
cudnnStatus_t cudnnSpatialTfSamplerForward(cudnnHandle_t handle, cudnnSpatialTransformerDescriptor_t of, const void *alpha,
                                           const cudnnTensorDescriptor_t x, const void *x_data, const void *grid,
                                           const void *beta, cudnnTensorDescriptor_t y, void *y_data) {
    return sample(handle, "_ZN5cudnn12grid_samplerEv", &y->is, 2);
}
cudnnStatus_t cudnnSpatialTfSamplerBackward(cudnnHandle_t handle, cudnnSpatialTransformerDescriptor_t of, const void *alpha,
                                            const cudnnTensorDescriptor_t x, const void *x_data, const void *beta,
                                            const cudnnTensorDescriptor_t dx, void *dx_data, const void *alpha_grid,
                                            const cudnnTensorDescriptor_t dy, const void *dy_data, const void *grid,
                                            const void *beta_grid, void *d_grid) {
    return sample(handle, "_ZN5cudnn15grid_sampler_bwEv", &dy->is, 4);
}
