/* What NVML says of the cards in software: of the same clock and the same work as all else.
 *
 * Keys of a card beside those of model.c, with the driver's ways as they were measured on real ones:
 *
 *     utilization_ms    167: over so long utilisation is counted, and then stands
 *     power_update_ms   100, power_averaged_ms 1000: how often power moves, and what it is the mean of
 *     energy_update_ms  100: how often the energy counter moves
 *     gpm               1 from compute capability 9 on
 *     mig_memory_mib    the card is a slice of one with so much memory: NVML tells of the whole too
 */
#define _GNU_SOURCE
#include "software_gpu.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NS 1e9
#define GPU_IDLE 0x1
#define HEAT (0x20 | 0x40)
#define IDLE_MHZ 345
#define AMBIENT_C 32
#define NOT_SUPPORTED 3

typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, instance; } Process;

static int64_t period_ns(int card, const char *key, double otherwise_ms) {
    return (int64_t)(1e6 * model_number(card, key, otherwise_ms));
}
/* The last moment at which a counter moved that moves so often. */
static int64_t last_move(int64_t now, int64_t period) {
    int64_t since = now - machine_began_ns();
    return machine_began_ns() + (period > 0 ? since / period * period : since);
}
static struct usage between(int card, int64_t from_ns, int64_t to_ns) {
    struct usage first = usage_until(card, from_ns), last = usage_until(card, to_ns);
    for (int i = 0; i < NUM_ENGINES; i++) last.busy_ns[i] -= first.busy_ns[i];
    last.sm_ns -= first.sm_ns;
    last.warp_ns -= first.warp_ns;
    last.joules -= first.joules;
    last.bytes_to -= first.bytes_to;
    last.bytes_from -= first.bytes_from;
    return last;
}
static double kernel_ns(const struct usage *used) {
    return (double)used->busy_ns[COMPUTE] + (double)used->busy_ns[EXCHANGE];
}
static double mean_watts(int card, int64_t to_ns, int64_t over_ns) {
    int64_t from_ns = to_ns - over_ns;
    if (from_ns < machine_began_ns()) from_ns = machine_began_ns();
    if (to_ns <= from_ns) return model_of(card)->idle_w;
    return between(card, from_ns, to_ns).joules * NS / (double)(to_ns - from_ns);
}
static int is_idle(int card, int64_t now) {
    struct usage used = between(card, now - 20000000, now);
    return kernel_ns(&used) == 0;
}
static long long utilization(int card, int64_t now) {
    int64_t period = period_ns(card, "utilization_ms", 1e3 / 6), end = last_move(now, period);
    struct usage used = between(card, end - period, end);
    return lround(fmin(100, 100 * kernel_ns(&used) / (double)period));
}
static long long milliwatts(int card, int64_t now) {
    int64_t end = last_move(now, period_ns(card, "power_update_ms", 100));
    return llround(1e3 * mean_watts(card, end, period_ns(card, "power_averaged_ms", 1000)));
}
static long long millijoules(int card, int64_t now) {
    int64_t end = last_move(now, period_ns(card, "energy_update_ms", 100));
    return (long long)(1e3 * usage_until(card, end).joules);
}
static uint64_t reasons(int card, int64_t now) {
    const struct phase *phase = phase_at(card, now);
    return is_idle(card, now) ? GPU_IDLE : phase ? phase->reasons : 0;
}
static long long celsius(int card, int64_t now) {
    const struct model *model = model_of(card);
    const struct phase *phase = phase_at(card, now);
    double load = mean_watts(card, now, (int64_t)(20 * NS)) / fmax(1, model->busy_w);
    return phase && phase->reasons & HEAT ? 90 : AMBIENT_C + lround(45 * fmin(1, load));
}
static long long megahertz(int card, int64_t now) {
    const struct phase *phase = phase_at(card, now);
    if (is_idle(card, now)) return IDLE_MHZ;
    return phase && phase->sm_mhz ? phase->sm_mhz : model_of(card)->sm_mhz;
}
static long long bus_kb(int card, int64_t now, int is_sent) {
    struct usage used = between(card, now - 20000000, now);
    return (long long)((is_sent ? used.bytes_from : used.bytes_to) / 0.02 / 1e3);
}
static double whole_mib(int card) { return model_number(card, "mig_memory_mib", 0); }
static long long total_mib(int card, int part) {
    double whole = part ? 0 : whole_mib(card);
    return whole ? (long long)whole : (long long)(model_of(card)->memory_bytes / MIB);
}

long long card_says(int index, int part, const char *name, long long otherwise) {
    int64_t now = now_ns();
    if (!strcmp(name, "gpus")) return num_cards();
    if (index < 0 || index >= num_cards()) return otherwise;
    if (!strcmp(name, "total_mib")) return total_mib(index, part);
    if (!strcmp(name, "used_mib")) return (long long)(used_bytes(index) / MIB);
    if (!strcmp(name, "mig")) return whole_mib(index) > 0;
    if (!strcmp(name, "parts")) return 1;
    if (!strcmp(name, "no_utilization")) return whole_mib(index) > 0;
    if (!strcmp(name, "utilization_pct")) return utilization(index, now);
    if (!strcmp(name, "power_mw")) return milliwatts(index, now);
    if (!strcmp(name, "energy_mj")) return millijoules(index, now);
    if (!strcmp(name, "temperature_c")) return celsius(index, now);
    if (!strcmp(name, "sm_mhz")) return megahertz(index, now);
    if (!strcmp(name, "throttle")) return (long long)reasons(index, now);
    if (!strcmp(name, "pcie_tx_kb")) return bus_kb(index, now, 1);
    if (!strcmp(name, "pcie_rx_kb")) return bus_kb(index, now, 0);
    if (!strcmp(name, "gpm")) return (long long)model_number(index, "gpm", model_of(index)->major >= 9);
    return otherwise;
}
/* A slice and the whole of it have the same number, behind another word. */
const char *card_text(int index, int part, const char *name) {
    static __thread char text[160];
    const struct model *model = model_of(index);
    if (!strcmp(name, "name")) return model->name;
    snprintf(text, sizeof text, "%s", model->uuid);
    if (part) memcpy(text, "MIG", 3);
    return text;
}
unsigned card_processes(int index, Process *list, unsigned room) {
    struct tenant found[64];
    int num = tenants(index, found, 64);
    for (int i = 0; i < num && i < 64 && i < (int)room; i++)
        list[i] = (Process){(unsigned)found[i].process, found[i].bytes, -1u, -1u};
    return (unsigned)num;
}
void card_counts(int index, int part, double counts[5]) {
    struct usage used = usage_until(index, now_ns());
    counts[0] = kernel_ns(&used);
    counts[1] = used.sm_ns;
    counts[2] = used.warp_ns;
    counts[3] = used.bytes_from;
    counts[4] = used.bytes_to;
    (void)part;
}
/* Graphics and SM activity, occupancy, and the bus in MiB/s; no card counts the others. */
int card_metric(unsigned id, const double first[5], const double last[5], double elapsed_s, double *value) {
    static const struct { unsigned id; int count; double whole; } known[] = {
        {1, 0, NS / 100}, {2, 1, NS / 100}, {3, 2, NS / 100}, {20, 3, 1 << 20}, {21, 4, 1 << 20}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == id) {
            *value = (last[known[i].count] - first[known[i].count]) / elapsed_s / known[i].whole;
            return 0;
        }
    return NOT_SUPPORTED;
}
