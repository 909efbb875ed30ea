/* libnvidia-ml.so.1: the functions that batchadvisor and torch ask.
 *
 * In the GPU in software the answers are those of its cards (nvml_cards.c). This file alone, compiled
 * as that library, has GPUs that a script makes up. What the script says goes before what a card
 * says. At load the environment variable SOFTWARE_GPU_NVML is read,
 *
 *     SOFTWARE_GPU_NVML="gpus=2,gpm=0,nvmlDeviceGetPowerUsage=3"
 *
 * and later nvml_set("power_mw", 1000) changes one setting. Names:
 *
 *     nvmlFoo            the return code of that function, for every call
 *     once:nvmlFoo       the same, for its next call only
 *     power_mw, ...      a value (see the calls of `setting` below for names and defaults)
 *     1.power_mw         the same for GPU 1 only
 *
 * mig=1 partitions a GPU, parts=2 says into how many parts. Power, energy, temperature, clocks and
 * utilisation are those of a whole GPU: of a part they are NOT_SUPPORTED, as the manual says.
 *
 * Alone: cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml.c -lpthread
 */

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
};

#define MAX_GPUS 8
#define MAX_PARTS 7
#define MAX_ENTRIES 256
#define NOT_AVAILABLE 0xffffffffffffffffULL
#define MIB (1024ULL * 1024)

typedef struct { int index, part; } Gpu; /* part: 1 to 7 of a partitioned GPU, 0 for the whole */
typedef struct { int index, part; double at_s, counts[5]; } GpmSample;
typedef struct { char name[80]; long long value; } Entry;

static Gpu gpus[MAX_GPUS], parts[MAX_GPUS][MAX_PARTS];
static Entry settings[MAX_ENTRIES], calls[MAX_ENTRIES];
static int num_settings, num_calls, num_inits, num_gpm_samples;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void (*refresh)(void);

/* What the cards say (nvml_cards.c); nobody does where this file is alone. Of a partitioned card
 * `part` is its number, from 1, or 0 for the whole; -1 as `index` is the machine. */
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, instance; } Process;
#define OF_CARDS __attribute__((weak))
OF_CARDS long long card_says(int index, int part, const char *name, long long otherwise);
OF_CARDS const char *card_text(int index, int part, const char *name);
OF_CARDS unsigned card_processes(int index, Process *list, unsigned room);
OF_CARDS void card_counts(int index, int part, double counts[5]);
OF_CARDS int card_metric(unsigned id, const double first[5], const double last[5], double elapsed_s,
                         double *value);

/* -------------------------------------------------------------------------------- settings */

static Entry *find(Entry *table, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

static Entry *find_or_add(Entry *table, int *count, const char *name) {
    Entry *entry = find(table, *count, name);
    if (entry == NULL) {
        if (*count == MAX_ENTRIES) abort();
        entry = &table[(*count)++];
        snprintf(entry->name, sizeof entry->name, "%s", name);
        entry->value = 0;
    }
    return entry;
}

void nvml_set(const char *name, long long value) {
    pthread_mutex_lock(&mutex);
    find_or_add(settings, &num_settings, name)->value = value;
    pthread_mutex_unlock(&mutex);
}

/* Calls `hook` before every answer: a device on paper then sets what it is by now. */
void nvml_refresh(void (*hook)(void)) { refresh = hook; }

/* Forgets all settings, those of the environment too, all counts and the hook. */
void nvml_reset(void) {
    refresh = NULL;
    pthread_mutex_lock(&mutex);
    num_settings = num_calls = num_inits = num_gpm_samples = 0;
    pthread_mutex_unlock(&mutex);
}

/* How often a function was called. */
long long nvml_calls(const char *name) {
    pthread_mutex_lock(&mutex);
    Entry *entry = find(calls, num_calls, name);
    long long count = entry ? entry->value : 0;
    pthread_mutex_unlock(&mutex);
    return count;
}

/* GPM buffers that were allocated and not freed. */
int nvml_gpm_samples(void) { return num_gpm_samples; }

__attribute__((constructor)) static void number_gpus(void) {
    for (int i = 0; i < MAX_GPUS; i++) {
        gpus[i].index = i;
        for (int j = 0; j < MAX_PARTS; j++) parts[i][j] = (Gpu){i, j + 1};
    }
}

__attribute__((constructor)) static void read_environment(void) {
    const char *text = getenv("SOFTWARE_GPU_NVML");
    if (text == NULL) return;
    char *copy = strdup(text), *rest = copy, *item;
    while ((item = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(item, '=');
        if (equals == NULL) continue;
        *equals = '\0';
        nvml_set(item, strtoll(equals + 1, NULL, 0));
    }
    free(copy);
}

static long long setting(const Gpu *gpu, const char *name, long long otherwise) {
    char own[96];
    snprintf(own, sizeof own, "%d.%s", gpu ? gpu->index : -1, name);
    pthread_mutex_lock(&mutex);
    Entry *entry = find(settings, num_settings, own);
    if (entry == NULL) entry = find(settings, num_settings, name);
    long long value = entry ? entry->value : otherwise;
    pthread_mutex_unlock(&mutex);
    if (entry != NULL || !card_says) return value;
    return card_says(gpu ? gpu->index : -1, gpu ? gpu->part : 0, name, otherwise);
}

static int is_scripted(const Gpu *gpu, const char *name) {
    char own[96];
    snprintf(own, sizeof own, "%d.%s", gpu->index, name);
    pthread_mutex_lock(&mutex);
    int is = find(settings, num_settings, own) || find(settings, num_settings, name);
    pthread_mutex_unlock(&mutex);
    return is;
}

/* Counts a call; the code that it must fail with, or SUCCESS. */
static int enter(const char *function) {
    char once[96];
    snprintf(once, sizeof once, "once:%s", function);
    if (refresh != NULL) refresh();
    pthread_mutex_lock(&mutex);
    find_or_add(calls, &num_calls, function)->value++;
    Entry *entry = find(settings, num_settings, once);
    long long code = SUCCESS;
    if (entry != NULL && entry->value != SUCCESS) {
        code = entry->value;
        entry->value = SUCCESS;
    } else if ((entry = find(settings, num_settings, function)) != NULL) {
        code = entry->value;
    }
    pthread_mutex_unlock(&mutex);
    return (int)code;
}

#define ENTER_UNREADY                        \
    do {                                     \
        int code_ = enter(__func__);         \
        if (code_ != SUCCESS) return code_;  \
    } while (0)
#define ENTER                                        \
    do {                                             \
        ENTER_UNREADY;                               \
        if (num_inits == 0) return UNINITIALIZED;    \
    } while (0)
#define WHOLE_ONLY(gpu)                              \
    do {                                             \
        ENTER;                                       \
        if ((gpu)->part) return NOT_SUPPORTED;       \
    } while (0)

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* --------------------------------------------------------------------------------- library */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ENTER_UNREADY;
    num_inits++;
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    ENTER;
    num_inits--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case 27: return "Stub is not ready";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    ENTER;
    snprintf(text, length, "999.00.1");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER;
    *version = 13000;
    return SUCCESS;
}

static int name_of_process(unsigned pid, char *text, unsigned length) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/exe", pid);
    ssize_t size = readlink(path, text, length - 1);
    if (size < 0) return NOT_FOUND;
    text[size] = '\0';
    return SUCCESS;
}

int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned length) {
    ENTER;
    if (setting(NULL, "name_is_no_text", 0))
        snprintf(text, length, "/opt/\xff\xfe");
    else if (!card_says)
        snprintf(text, length, "/opt/stub/bin/trainer-%u", pid);
    else
        return name_of_process(pid, text, length);
    return SUCCESS;
}

/* ----------------------------------------------------------------------------------- GPUs */

int nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER;
    *count = (unsigned)setting(NULL, "gpus", 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu) {
    ENTER;
    if (index >= setting(NULL, "gpus", 1)) return INVALID_ARGUMENT;
    *gpu = &gpus[index];
    return SUCCESS;
}

/* "0000:05:00.0": the card's place is its bus, less one. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Gpu **gpu) {
    unsigned domain, bus;
    ENTER;
    if (sscanf(id, "%x:%x", &domain, &bus) != 2) return INVALID_ARGUMENT;
    if (bus < 1 || bus > setting(NULL, "gpus", 1)) return NOT_FOUND;
    *gpu = &gpus[bus - 1];
    return SUCCESS;
}

int nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) {
    ENTER;
    *index = gpu->index;
    return SUCCESS;
}

/* Nothing joins the cards but the bus. */
int nvmlDeviceGetGpuFabricInfoV(Gpu *gpu, void *about) {
    (void)gpu, (void)about;
    ENTER;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Gpu *gpu, unsigned link, int *type) {
    (void)gpu, (void)link, (void)type;
    ENTER;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Gpu *gpu, unsigned link, void *about) {
    (void)gpu, (void)link, (void)about;
    ENTER;
    return NOT_SUPPORTED;
}

static void write_uuid(const Gpu *gpu, char *text, size_t length) {
    const char *own = card_text ? card_text(gpu->index, gpu->part, "uuid") : NULL;
    if (own)
        snprintf(text, length, "%s", own);
    else
        snprintf(text, length, "%s-0000000%d-1111-2222-3333-44444444444%d", gpu->part ? "MIG" : "GPU",
             gpu->index, gpu->part ? gpu->part : 4);
}

static long long num_parts(const Gpu *gpu) {
    return setting(gpu, "mig", 0) == 1 ? setting(gpu, "parts", 2) : 0;
}

static int has_uuid(Gpu *gpu, const char *uuid, Gpu **answer) {
    char own[96];
    write_uuid(gpu, own, sizeof own);
    if (strcmp(own, uuid) != 0) return 0;
    *answer = gpu;
    return 1;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu) {
    ENTER;
    for (int i = 0; i < setting(NULL, "gpus", 1); i++) {
        if (has_uuid(&gpus[i], uuid, gpu)) return SUCCESS;
        for (int j = 0; j < num_parts(&gpus[i]); j++)
            if (has_uuid(&parts[i][j], uuid, gpu)) return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned length) {
    ENTER;
    write_uuid(gpu, text, length);
    return SUCCESS;
}

/* `alike=1`: all have the same name. */
int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned length) {
    ENTER;
    const char *own = card_text ? card_text(gpu->index, gpu->part, "name") : NULL;
    if (own)
        snprintf(text, length, "%s", own);
    else if (gpu->part)
        snprintf(text, length, "Stub GPU MIG 1g.2gb");
    else if (setting(NULL, "alike", 0))
        snprintf(text, length, "Stub GPU");
    else
        snprintf(text, length, "Stub GPU %d", gpu->index);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *count) {
    ENTER;
    if (gpu->part || setting(gpu, "mig", 0) < 0) return NOT_SUPPORTED;
    *count = MAX_PARTS;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Gpu **part) {
    ENTER;
    if (index >= num_parts(gpu)) return NOT_FOUND;
    *part = &parts[gpu->index][index];
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(Gpu *gpu, unsigned *is_part) {
    ENTER;
    *is_part = gpu->part != 0;
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Gpu *part, Gpu **gpu) {
    ENTER;
    *gpu = &gpus[part->index];
    return SUCCESS;
}

/* Numbers of GPU instances are not places: the first here is 8. */
int nvmlDeviceGetGpuInstanceId(Gpu *part, unsigned *id) {
    ENTER;
    if (!part->part) return NOT_SUPPORTED;
    *id = 7 + part->part;
    return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } Memory;

int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) {
    ENTER;
    memory->total = (unsigned long long)setting(gpu, "total_mib", 16384) * MIB;
    memory->used = (unsigned long long)setting(gpu, "used_mib", 4096) * MIB;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    WHOLE_ONLY(gpu);
    long long mode = setting(gpu, "mig", 0);
    if (mode < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)mode;
    return SUCCESS;
}

/* ------------------------------------------------------------------------------- counters */

typedef struct { unsigned gpu, memory; } Utilization;

int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *utilization) {
    WHOLE_ONLY(gpu);
    if (setting(gpu, "no_utilization", 0)) return NOT_SUPPORTED;
    utilization->gpu = (unsigned)setting(gpu, "utilization_pct", 87);
    utilization->memory = 40;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *milliwatts) {
    WHOLE_ONLY(gpu);
    long long period = setting(gpu, "power_update_ms", 0);
    long long turn = period ? (long long)(now_s() * 1e3) / period % 2 : 0;
    *milliwatts = (unsigned)(setting(gpu, "power_mw", 250000) + turn * 1000);
    return SUCCESS;
}

/* Without a setting it runs at 250 W, as the real one would; energy_update_ms makes it jump. */
int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *millijoules) {
    WHOLE_ONLY(gpu);
    long long fixed = setting(gpu, "energy_mj", -1);
    double period_s = setting(gpu, "energy_update_ms", 0) / 1e3;
    double read_s = period_s > 0 ? floor(now_s() / period_s) * period_s : now_s();
    *millijoules = fixed >= 0 ? (unsigned long long)fixed : (unsigned long long)(250e3 * read_s);
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *celsius) {
    WHOLE_ONLY(gpu);
    (void)sensor;
    *celsius = (unsigned)setting(gpu, "temperature_c", 61);
    return SUCCESS;
}

typedef struct { unsigned version, sensor; int celsius; } Temperature;

int nvmlDeviceGetTemperatureV(Gpu *gpu, Temperature *temperature) {
    WHOLE_ONLY(gpu);
    temperature->celsius = (int)setting(gpu, "temperature_c", 61);
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned kind, unsigned *mhz) {
    WHOLE_ONLY(gpu);
    if (kind != 1) return INVALID_ARGUMENT; /* 1: multiprocessors */
    *mhz = (unsigned)setting(gpu, "sm_mhz", 1500);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *bits) {
    WHOLE_ONLY(gpu);
    *bits = (unsigned long long)setting(gpu, "throttle", 0);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *bits) {
    WHOLE_ONLY(gpu);
    *bits = (unsigned long long)setting(gpu, "throttle", 0);
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(Gpu *gpu, unsigned counter, unsigned *kb_per_s) {
    WHOLE_ONLY(gpu);
    if (card_says) usleep(20000); /* it counts for so long */
    *kb_per_s = (unsigned)setting(gpu, counter == 0 ? "pcie_tx_kb" : "pcie_rx_kb", 7000);
    return SUCCESS;
}

/* ------------------------------------------------------------------------------ processes */

/* `pid` is the probed process (by default the one that loaded this; 0: nobody), `others` how many
 * more there are: 4000001 and so on. */
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, Process *processes) {
    ENTER;
    unsigned room = *count;
    if (card_processes && !is_scripted(gpu, "pid") && !is_scripted(gpu, "others")) {
        *count = card_processes(gpu->index, processes, processes == NULL ? 0 : room);
        return *count == 0 || (processes != NULL && room >= *count) ? SUCCESS : INSUFFICIENT_SIZE;
    }
    unsigned own = (unsigned)setting(gpu, "pid", getpid());
    unsigned others = (unsigned)setting(gpu, "others", 0), total = others + (own != 0), place = 0;
    *count = total;
    if (total == 0) return SUCCESS;
    if (processes == NULL || room < total) return INSUFFICIENT_SIZE;
    unsigned long long hidden = setting(gpu, "bytes_hidden", 0) ? NOT_AVAILABLE : 0;
    for (unsigned i = 0; i < others; i++)
        processes[place++] = (Process){4000001 + i, hidden ? hidden : 1024 * MIB, 0, 0};
    unsigned long long own_bytes = (unsigned long long)setting(gpu, "own_mib", 2048) * MIB;
    if (own) processes[place++] = (Process){own, hidden ? hidden : own_bytes, 0, 0};
    return SUCCESS;
}

/* The oldest of its versions, which torch asks for: numbers and bytes alone. */
int nvmlDeviceGetComputeRunningProcesses(Gpu *gpu, unsigned *count, void *list) {
    struct { unsigned pid; unsigned long long bytes; } *answer = list;
    Process processes[64];
    unsigned room = *count, found = 64;
    int code = nvmlDeviceGetComputeRunningProcesses_v3(gpu, &found, processes);
    if (code != SUCCESS) return code;
    *count = found;
    if (found > room || (found && !list)) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) {
        answer[i].pid = processes[i].pid;
        answer[i].bytes = processes[i].bytes;
    }
    return SUCCESS;
}

/* ------------------------------------------------------------------------------------ GPM */

typedef struct { unsigned version, is_supported; } GpmSupport;
typedef struct { const char *short_name, *long_name, *unit; } MetricInfo;
typedef struct { unsigned id; int code; double value; MetricInfo info; } Metric;
typedef struct { unsigned version, count; GpmSample *first, *last; Metric metrics[]; } GpmQuery;

int nvmlGpmQueryDeviceSupport(Gpu *gpu, GpmSupport *support) {
    WHOLE_ONLY(gpu);
    support->is_supported = setting(gpu, "gpm", 1) != 0;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
    ENTER;
    *sample = calloc(1, sizeof **sample);
    __atomic_add_fetch(&num_gpm_samples, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

int nvmlGpmSampleFree(GpmSample *sample) {
    ENTER;
    free(sample);
    __atomic_sub_fetch(&num_gpm_samples, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

static void count_now(GpmSample *sample, int index, int part) {
    *sample = (GpmSample){.index = index, .part = part, .at_s = now_s()};
    if (card_counts) card_counts(index, part, sample->counts);
}

int nvmlGpmSampleGet(Gpu *gpu, GpmSample *sample) {
    ENTER;
    if (gpu->part || !setting(gpu, "gpm", 1)) return NOT_SUPPORTED;
    count_now(sample, gpu->index, 0);
    return SUCCESS;
}

int nvmlGpmMigSampleGet(Gpu *gpu, unsigned instance, GpmSample *sample) {
    ENTER;
    if (gpu->part || !setting(gpu, "gpm", 1)) return NOT_SUPPORTED;
    if (instance < 8 || instance >= 8 + num_parts(gpu)) return INVALID_ARGUMENT;
    count_now(sample, gpu->index, (int)instance - 7);
    return SUCCESS;
}

/* Metric 5 answers 50 + 5 unless `gpm.5` says otherwise, in thousandths; `gpm_code.5` is its own
 * return code, `gpm_nan.5` makes it NaN. */
int nvmlGpmMetricsGet(GpmQuery *query) {
    ENTER;
    if (query->version != 1 || query->first->at_s >= query->last->at_s) return INVALID_ARGUMENT;
    const Gpu *gpu = &gpus[query->first->index];
    for (unsigned i = 0; i < query->count; i++) {
        Metric *metric = &query->metrics[i];
        char name[32];
        snprintf(name, sizeof name, "gpm.%u", metric->id);
        metric->value = setting(gpu, name, (50 + metric->id) * 1000LL) / 1000.0;
        metric->value += query->first->part; /* so that a part can be told from the whole */
        snprintf(name, sizeof name, "gpm_nan.%u", metric->id);
        if (setting(gpu, name, 0)) metric->value = NAN;
        snprintf(name, sizeof name, "gpm_code.%u", metric->id);
        metric->code = (int)setting(gpu, name, SUCCESS);
        snprintf(name, sizeof name, "gpm.%u", metric->id);
        if (card_metric && !is_scripted(gpu, name))
            metric->code = card_metric(metric->id, query->first->counts, query->last->counts,
                                       query->last->at_s - query->first->at_s, &metric->value);
    }
    return SUCCESS;
}
