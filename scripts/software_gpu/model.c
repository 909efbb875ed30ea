/* What a card is, and how long work takes on it. */
#define _GNU_SOURCE
#include "software_gpu.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KEYS 512
#define EVERYTHING -2 /* of lines where no [card] is */

struct pair { int card; char *key, *text; };
static struct pair pairs[MOST_KEYS];
static int num_pairs, cards;
static struct model models[MOST_CARDS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void read_models(void);

static void refuse(const char *what, const char *text) {
    fprintf(stderr, "software GPU: %s: %s. Correct the file that SOFTWARE_GPU_MODEL names.\n", what, text);
    exit(2);
}

/* ---- the file: lines of `key = value`; `[card]` begins the next card ---- */

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
    return text;
}
static void read_file(const char *path) {
    FILE *file = fopen(path, "re");
    if (!file) refuse(strerror(errno), path);
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        char *comment = strchr(line, '#');
        if (comment) *comment = 0;
        char *text = trimmed(line), *equals = strchr(text, '=');
        if (!*text) continue;
        if (!strcmp(text, "[card]")) {
            if (++cards > MOST_CARDS) refuse("too many cards", path);
            continue;
        }
        if (!equals) refuse("neither [card] nor key = value", text);
        if (num_pairs == MOST_KEYS) refuse("too many keys", path);
        *equals = 0;
        pairs[num_pairs++] = (struct pair){cards - 1, strdup(trimmed(text)), strdup(trimmed(equals + 1))};
    }
    fclose(file);
}
static int is_about(int pair, int card) { return pairs[pair].card == card || pairs[pair].card == EVERYTHING; }
static const char *text_of(int card, const char *key, const char *otherwise) {
    for (int i = num_pairs - 1; i >= 0; i--)
        if (is_about(i, card) && !strcmp(pairs[i].key, key)) return pairs[i].text;
    return otherwise;
}
static double number_of(int card, const char *key, double otherwise) {
    const char *text = text_of(card, key, NULL);
    if (!text) return otherwise;
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end) refuse(key, text);
    return number;
}
const char *model_text(int card, const char *key, const char *otherwise) {
    pthread_once(&once, read_models);
    return text_of(card, key, otherwise);
}
double model_number(int card, const char *key, double otherwise) {
    pthread_once(&once, read_models);
    return number_of(card, key, otherwise);
}
const char *machine_text(const char *key, const char *otherwise) { return model_text(-1, key, otherwise); }
double machine_number(const char *key, double otherwise) { return model_number(-1, key, otherwise); }

/* phase = FROM_S UNTIL_S SLOWER REASONS MHZ; may be given several times. */
static void read_phases(int card, struct model *model) {
    for (int i = 0; i < num_pairs; i++) {
        if (!is_about(i, card) || strcmp(pairs[i].key, "phase")) continue;
        struct phase phase = {0};
        unsigned long long reasons;
        if (model->num_phases == 8 || sscanf(pairs[i].text, "%lf %lf %lf %lli %d", &phase.from_s, &phase.until_s,
                                             &phase.slower, (long long *)&reasons, &phase.sm_mhz) != 5)
            refuse("phase", pairs[i].text);
        phase.reasons = reasons;
        model->phases[model->num_phases++] = phase;
    }
}

/* By default the figures of an A100 of 80 GB. */
static void read_model(int card) {
    struct model *model = &models[card];
    const char *bytes = getenv("SOFTWARE_GPU_BYTES");
    snprintf(model->name, sizeof model->name, "software GPU %s", text_of(card, "name", "A100"));
    snprintf(model->uuid, sizeof model->uuid, "%s", text_of(card, "uuid", ""));
    if (!*model->uuid) snprintf(model->uuid, sizeof model->uuid, "GPU-50f70000-0000-4000-8000-00000000000%d", card);
    if (sscanf(text_of(card, "capability", "8.0"), "%d.%d", &model->major, &model->minor) != 2)
        refuse("capability", text_of(card, "capability", ""));
#define NUMBER(field, key, otherwise, unit) model->field = number_of(card, key, otherwise) * (unit)
    NUMBER(sms, "sms", 108, 1);
    NUMBER(threads_per_sm, "threads_per_sm", 2048, 1);
    NUMBER(blocks_per_sm, "blocks_per_sm", 32, 1);
    NUMBER(registers_per_sm, "registers_per_sm", 65536, 1);
    NUMBER(shared_per_sm, "shared_kib_per_sm", 164, 1024);
    NUMBER(memory_bytes, "memory_mib", 81920, MIB);
    NUMBER(context_bytes, "context_mib", 0, MIB);
    NUMBER(pinned_bytes, "pinned_mib", 1e9, MIB);
    NUMBER(copied_bytes, "copied_mib", 1, MIB);
    NUMBER(bandwidth, "bandwidth_gb_s", 1555, 1e9);
    NUMBER(thread_bytes, "thread_bytes", 48, 1);
    NUMBER(pinned, "pinned_gb_s", 25, 1e9);
    NUMBER(pageable, "pageable_gb_s", 6, 1e9);
    NUMBER(peer, "peer_gb_s", 50, 1e9);
    NUMBER(peak_fp64, "fp64_tflops", 9.7, 1e12);
    NUMBER(peak_fp32, "fp32_tflops", 19.5, 1e12);
    NUMBER(peak_tf32, "tf32_tflops", 156, 1e12);
    NUMBER(peak_half, "half_tflops", 312, 1e12);
    NUMBER(peak_int8, "int8_tops", 624, 1e12);
    NUMBER(half_flops, "half_efficiency_gflop", 2, 1e9);
    NUMBER(launch_ns, "launch_us", 0, 1e3);
    NUMBER(kernel_ns, "kernel_us", 2.5, 1e3);
    NUMBER(copy_ns, "copy_us", 2.0, 1e3);
    NUMBER(queue, "queue", 1024, 1);
    NUMBER(idle_w, "idle_w", 60, 1);
    NUMBER(busy_w, "busy_w", 350, 1);
    NUMBER(sm_mhz, "sm_mhz", 1410, 1);
#undef NUMBER
    if (bytes) model->memory_bytes = strtoull(bytes, NULL, 10);
    read_phases(card, model);
}
static void read_models(void) {
    const char *path = getenv("SOFTWARE_GPU_MODEL");
    if (path && *path) read_file(path);
    if (!cards) { /* one card, which the lines are about, and the machine */
        for (int i = 0; i < num_pairs; i++) pairs[i].card = EVERYTHING;
        cards = 1;
    }
    for (int i = 0; i < cards; i++) read_model(i);
}
int num_cards(void) {
    pthread_once(&once, read_models);
    return cards;
}
const struct model *model_of(int card) {
    pthread_once(&once, read_models);
    return &models[card];
}

/* ---- prices ---- */

static const struct model *of_device(int device) { return model_of(card_of(device)); }

int resident_blocks(int device, int threads, int registers, size_t shared) {
    const struct model *model = of_device(device);
    int warps = (threads + 31) / 32;
    int most = model->threads_per_sm / 32 / (warps ? warps : 1);
    if (most > model->blocks_per_sm) most = model->blocks_per_sm;
    if (registers && warps) {
        int by_registers = model->registers_per_sm / ((registers * 32 + 255) / 256 * 256 * warps);
        if (most > by_registers) most = by_registers;
    }
    if (shared && most > (int)(model->shared_per_sm / (shared + 1024))) most = model->shared_per_sm / (shared + 1024);
    return most > 0 ? most : 1;
}

/* Blocks come in waves. A block moves its threads' bytes at an even share of its SM's bandwidth, so
 * that a wave that is not full takes as long as one that is. */
int64_t price_threads(int device, const unsigned grid[3], const unsigned block[3]) {
    const struct model *model = of_device(device);
    double blocks = (double)grid[0] * grid[1] * grid[2];
    int threads = block[0] * block[1] * block[2];
    int resident = resident_blocks(device, threads, 32, 0);
    double waves = ceil(blocks / ((double)resident * model->sms));
    double wave_s = (double)resident * threads * model->thread_bytes / (model->bandwidth / model->sms);
    return model->kernel_ns + llround(1e9 * waves * wave_s);
}
int64_t price_bytes(int device, double bytes) {
    const struct model *model = of_device(device);
    return model->kernel_ns + llround(1e9 * bytes / model->bandwidth);
}

static double peak(const struct model *model, cudaDataType type, int tf32) {
    switch (type) {
    case CUDA_R_64F:
    case CUDA_C_64F: return model->peak_fp64;
    case CUDA_R_16F:
    case CUDA_R_16BF: return model->peak_half;
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return model->peak_int8;
    default: return tf32 ? model->peak_tf32 : model->peak_fp32;
    }
}
/* A small product reaches less of the peak: half of it at half_flops. */
int64_t price_flops(int device, cudaDataType type, int tf32, double flops) {
    const struct model *model = of_device(device);
    double seconds = flops > 0 ? (flops + model->half_flops) / peak(model, type, tf32) : 0;
    return model->kernel_ns + llround(1e9 * seconds);
}
void price_product(int device, cudaDataType type, int tf32, double m, double n, double k, double batches,
                   struct kernel *kernel) {
    int is_half = type == CUDA_R_16F || type == CUDA_R_16BF;
    *kernel = (struct kernel){
        .name = is_half ? "software_gpu_hgemm_128x64_nn" : "software_gpu_sgemm_128x64_nn",
        .duration_ns = price_flops(device, type, tf32, 2 * m * n * k * batches),
        .grid = {ceil(m / 128) > 0 ? ceil(m / 128) : 1, ceil(n / 64) > 0 ? ceil(n / 64) : 1, batches > 0 ? batches : 1},
        .block = {256, 1, 1},
        .registers = 128,
        .shared_static = 24 << 10,
    };
}
