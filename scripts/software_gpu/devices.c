/* The machine: cards whose memory and time are shared by processes, through a mapped file. */
#define _GNU_SOURCE
#include "software_gpu.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_TENANTS 64
#define NUM_STRETCHES 16384 /* of work that are remembered; older ones are sums */
#define MAGIC 0x50f76b75

/* Work without a gap, of an even kind; sums are of all before it. */
struct stretch { int64_t start_ns, end_ns; double share, warps, watts, rate; };
struct sums { int64_t busy_ns; double sm_ns, warp_ns, joules, bytes; };
struct history {
    uint64_t count; /* of all stretches so far */
    struct stretch stretches[NUM_STRETCHES];
    struct sums before[NUM_STRETCHES];
};
struct card {
    size_t used;
    int num_tenants;
    struct tenant tenants[MOST_TENANTS];
    int64_t free_ns[NUM_ENGINES];
    struct history histories[NUM_ENGINES];
};
struct machine {
    uint32_t magic;
    int64_t began_ns;
    pthread_mutex_t mutex;
    struct card cards[MOST_CARDS];
};

static struct machine *machine;
static int devices[MOST_CARDS], num_visible;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}
/* Sleeping alone would end late by the timer's slack and by what the machine does meanwhile. */
void wait_until(int64_t then_ns) {
    const int64_t spun_ns = 60000;
    int64_t left_ns = then_ns - now_ns();
    if (left_ns > spun_ns) {
        int64_t wake_ns = then_ns - spun_ns;
        struct timespec wake = {wake_ns / 1000000000, wake_ns % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) == EINTR) {}
    }
    while (now_ns() < then_ns) {}
}

/* ---- the file ---- */

static void prepare(struct machine *made) {
    pthread_mutexattr_t about;
    pthread_mutexattr_init(&about);
    pthread_mutexattr_setpshared(&about, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&about, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&made->mutex, &about);
    made->began_ns = now_ns();
    __atomic_store_n(&made->magic, MAGIC, __ATOMIC_RELEASE);
}
static void *mapped(int file) {
    int flags = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *at = mmap(NULL, sizeof(struct machine), PROT_READ | PROT_WRITE, flags, file, 0);
    if (at == MAP_FAILED) {
        perror("software GPU: the machine's memory");
        exit(2);
    }
    return at;
}
static void find_visible(void);
static void open_machine(void) {
    const char *path = getenv("SOFTWARE_GPU_MACHINE");
    find_visible();
    if (!path || !*path) { /* this process and its forks */
        machine = mapped(-1);
        prepare(machine);
        return;
    }
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || flock(file, LOCK_EX) || ftruncate(file, sizeof(struct machine))) {
        fprintf(stderr, "software GPU: %s: %s\n", path, strerror(errno));
        exit(2);
    }
    machine = mapped(file);
    if (machine->magic != MAGIC) prepare(machine);
    flock(file, LOCK_UN);
    close(file);
}
static struct machine *locked(void) {
    pthread_once(&once, open_machine);
    if (pthread_mutex_lock(&machine->mutex) == EOWNERDEAD) pthread_mutex_consistent(&machine->mutex);
    return machine;
}
static void unlock(void) { pthread_mutex_unlock(&machine->mutex); }
int64_t machine_began_ns(void) {
    pthread_once(&once, open_machine);
    return machine->began_ns;
}

/* ---- which cards this process sees: CUDA_VISIBLE_DEVICES, up to the first that is not there ---- */

static int card_named(const char *text) {
    char *end;
    long number = strtol(text, &end, 10);
    if (end != text && !*end) return number >= 0 && number < num_cards() ? number : -1;
    int found = -1;
    for (int i = 0; i < num_cards(); i++) {
        char uuid[sizeof model_of(i)->uuid];
        strcpy(uuid, model_of(i)->uuid);
        if (!strncmp(text, "MIG-", 4) && model_number(i, "mig_memory_mib", 0)) memcpy(uuid, "MIG", 3);
        if (*text && !strncmp(uuid, text, strlen(text))) {
            if (found >= 0) return -1;
            found = i;
        }
    }
    return found;
}
static void find_visible(void) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) {
        for (num_visible = 0; num_visible < num_cards(); num_visible++) devices[num_visible] = num_visible;
        return;
    }
    char *copy = strdup(text), *rest = copy, *item;
    while ((item = strsep(&rest, ",")) && num_visible < MOST_CARDS) {
        while (*item == ' ') item++;
        int card = card_named(item);
        for (int i = 0; i < num_visible && card >= 0; i++)
            if (devices[i] == card) { /* twice: none is seen */
                num_visible = 0;
                free(copy);
                return;
            }
        if (card < 0) break;
        devices[num_visible++] = card;
    }
    free(copy);
}
int num_devices(void) {
    pthread_once(&once, open_machine);
    return num_visible;
}
int card_of(int device) {
    pthread_once(&once, open_machine);
    return devices[device];
}

/* ---- memory ---- */

static int lives(int process) { return !kill(process, 0) || errno == EPERM; }
static void remove_dead(struct card *card) {
    for (int i = 0; i < card->num_tenants; i++)
        if (!lives(card->tenants[i].process)) {
            card->used -= card->tenants[i].bytes;
            card->tenants[i--] = card->tenants[--card->num_tenants];
        }
}
static struct tenant *own(struct card *card) {
    int process = getpid();
    for (int i = 0; i < card->num_tenants; i++)
        if (card->tenants[i].process == process) return &card->tenants[i];
    if (card->num_tenants == MOST_TENANTS) remove_dead(card);
    if (card->num_tenants == MOST_TENANTS) abort();
    card->tenants[card->num_tenants] = (struct tenant){process, 0};
    return &card->tenants[card->num_tenants++];
}
int take_bytes(int number, size_t size) {
    struct card *card = &locked()->cards[number];
    const struct model *model = model_of(number);
    struct tenant *tenant = own(card);
    size_t wanted = size + (tenant->bytes ? 0 : model->context_bytes);
    if (card->used + wanted > model->memory_bytes) {
        remove_dead(card);
        tenant = own(card);
    }
    int has_room = card->used + wanted <= model->memory_bytes;
    if (has_room) {
        tenant->bytes += wanted;
        card->used += wanted;
    }
    unlock();
    return has_room;
}
void return_bytes(int number, size_t size) {
    struct card *card = &locked()->cards[number];
    struct tenant *tenant = own(card);
    if (size > tenant->bytes) size = tenant->bytes;
    tenant->bytes -= size;
    card->used -= size;
    unlock();
}
size_t used_bytes(int number) {
    struct card *card = &locked()->cards[number];
    remove_dead(card);
    size_t used = card->used;
    unlock();
    return used;
}
int tenants(int number, struct tenant *list, int room) {
    struct card *card = &locked()->cards[number];
    remove_dead(card);
    int count = card->num_tenants;
    for (int i = 0; i < count && i < room; i++) list[i] = card->tenants[i];
    unlock();
    return count;
}

/* ---- time ---- */

const struct phase *phase_at(int number, int64_t at_ns) {
    const struct model *model = model_of(number);
    double at_s = (at_ns - machine_began_ns()) / 1e9;
    for (int i = 0; i < model->num_phases; i++)
        if (model->phases[i].from_s <= at_s && at_s < model->phases[i].until_s) return &model->phases[i];
    return NULL;
}

static struct sums until(const struct history *history, int64_t at_ns) {
    uint64_t end = history->count, begin = end > NUM_STRETCHES ? end - NUM_STRETCHES : 0, first = begin;
    while (begin < end) { /* the last one that starts before that moment */
        uint64_t middle = (begin + end) / 2;
        if (history->stretches[middle % NUM_STRETCHES].start_ns <= at_ns) begin = middle + 1;
        else end = middle;
    }
    if (begin == first) return first ? history->before[first % NUM_STRETCHES] : (struct sums){0};
    const struct stretch *last = &history->stretches[(begin - 1) % NUM_STRETCHES];
    struct sums sums = history->before[(begin - 1) % NUM_STRETCHES];
    int64_t ran_ns = (at_ns < last->end_ns ? at_ns : last->end_ns) - last->start_ns;
    sums.busy_ns += ran_ns;
    sums.sm_ns += last->share * ran_ns;
    sums.warp_ns += last->warps * ran_ns;
    sums.joules += last->watts * ran_ns / 1e9;
    sums.bytes += last->rate * ran_ns;
    return sums;
}
static void add(struct history *history, struct stretch added) {
    if (history->count) {
        struct stretch *last = &history->stretches[(history->count - 1) % NUM_STRETCHES];
        if (last->end_ns == added.start_ns && last->share == added.share && last->warps == added.warps && last->watts == added.watts &&
            last->rate == added.rate) {
            last->end_ns = added.end_ns;
            return;
        }
    }
    struct sums before = until(history, added.start_ns);
    history->before[history->count % NUM_STRETCHES] = before;
    history->stretches[history->count++ % NUM_STRETCHES] = added;
}

/* Engines work in the order in which they are asked: a process behind another one waits its turn. */
int64_t reserve_engine(int number, enum engine engine, int64_t ready_ns, int64_t duration_ns, double share,
                       double warps, double bytes) {
    const struct model *model = model_of(number);
    struct card *card = &locked()->cards[number];
    own(card);
    int64_t start_ns = ready_ns > card->free_ns[engine] ? ready_ns : card->free_ns[engine];
    if (duration_ns > 0) {
        int is_compute = engine == COMPUTE || engine == EXCHANGE;
        double watts = is_compute ? model->busy_w - model->idle_w : 0;
        add(&card->histories[engine], (struct stretch){start_ns, start_ns + duration_ns, is_compute ? share : 0,
                                                       is_compute ? warps : 0,                                                       watts, bytes / duration_ns});
        card->free_ns[engine] = start_ns + duration_ns;
    }
    unlock();
    return start_ns;
}

struct usage usage_until(int number, int64_t at_ns) {
    struct usage usage = {0};
    struct card *card = &locked()->cards[number];
    for (int engine = 0; engine < NUM_ENGINES; engine++) {
        struct sums sums = until(&card->histories[engine], at_ns);
        usage.busy_ns[engine] = sums.busy_ns;
        usage.sm_ns += sums.sm_ns;
        usage.warp_ns += sums.warp_ns;
        usage.joules += sums.joules;
        if (engine == TO_DEVICE) usage.bytes_to = sums.bytes;
        if (engine == FROM_DEVICE) usage.bytes_from = sums.bytes;
    }
    unlock();
    usage.joules += model_of(number)->idle_w * (at_ns - machine_began_ns()) / 1e9;
    return usage;
}

/* For tests, which compare what is said of a card with what it did: seconds of kernels and copies (which
 * must not overlap) and of SMs at work, joules above those of an idle card, and its watts. */
void software_gpu_usage(int device, double sums[4]) {
    int64_t at_ns = now_ns();
    struct usage usage = usage_until(card_of(device), at_ns);
    double idle_w = model_of(card_of(device))->idle_w;
    sums[0] = (usage.busy_ns[COMPUTE] + usage.busy_ns[TO_DEVICE] + usage.busy_ns[FROM_DEVICE]) / 1e9;
    sums[1] = usage.sm_ns / 1e9;
    sums[2] = usage.joules - idle_w * (at_ns - machine_began_ns()) / 1e9;
    sums[3] = idle_w;
}
