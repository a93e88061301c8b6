/* A libnvidia-ml.so.1 for tests: no GPU, no driver, answers from a text file that is read again at every call.
 *
 *     cc -shared -fPIC -O2 -Wall -Wextra -Werror -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 *.c
 *
 * FAKE_NVML         the scenario file (default /etc/fakenvml.conf)
 * FAKE_NVML_DEVICE  a character node that nvmlInit opens (the key `device` does the same)
 * FAKE_NVML_LOG     a file that gets one line a call: "<pid> <call> <gpu or ->"
 *
 * A line is KEY = VALUE, # begins a comment line, the last line of a key wins. N is a GPU's index, or * for every GPU
 * that has no line of its own. A key that is missing makes its call NVML_ERROR_NOT_SUPPORTED.
 *
 *     count = 8            driver = 580.65.06        device = /dev/nvidiactl
 *     N.name  N.uuid  N.pci = 00000000:18:00.0       N.serial
 *     N.temperature = 41   N.margin = 46   N.memory_temperature = 50
 *     N.thresholds = SHUTDOWN SLOWDOWN MEM_MAX GPU_MAX  absolute ones (older cards); `-` for one that is missing
 *     N.tlimits    = SHUTDOWN SLOWDOWN MEM_MAX GPU_MAX  offsets (Ada and later), e.g. -8 -2 0 0
 *     N.memory = TOTAL RESERVED USED   (bytes)       N.utilisation = GPU MEMORY   (percent)
 *     N.power = MW   N.limit = MW   N.limits = MIN MAX DEFAULT (mW)      N.clocks = GRAPHICS SM MEMORY VIDEO (MHz)
 *     N.max_clocks = (the same)   N.energy = MJ
 *     N.reasons = BITMASK   N.supported_reasons = BITMASK   N.fan = PERCENT   N.pstate = 0
 *     N.compute = PID:BYTES[:INSTANCE] ...   N.graphics = ...   N.mps = ...   BYTES may be `-`: not available
 *     N.parent_lists = no     the card itself lists no processes, its MIG instances do
 *     once a minute: see minute.c      what can be set: see changes.c
 *
 * Faults; CALL is the symbol's name, "nvmlInit" for every form of that:
 *     CALL.error = 18   N.CALL.error = 3   N.error = 15     NVML's error code: a call, a GPU's call, all of a GPU's calls
 *     CALL.hang = 5     N.CALL.hang = 5    N.hang = 3600    seconds (0.02: slow). The call goes on when the time is over
 *                                                           or the line is gone from the file, and no signal but KILL ends it.
 *     CALL.write = PATH   N.CALL.write     N.write          the call writes to a file, as a driver waits for its hardware:
 *                                                           on a frozen file system it is in D state, and nothing ends it.
 */
#include "fakenvml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { MOST_GPUS = 64, MOST_LINES = 4096, MOST_BYTES = 1 << 18 };

static struct gpu gpus[MOST_GPUS];
static volatile int initialised;

/* ---- the scenario, one copy a thread, so that calls of several threads don't disturb each other ---- */

static __thread struct {
    char text[MOST_BYTES];
    char *key[MOST_LINES], *value[MOST_LINES];
    int lines;
} scenario;

static char *trim(char *text) {
    text += strspn(text, " \t\r");
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r", end[-1])) *--end = 0;
    return text;
}

static const char *scenario_path(void) {
    const char *path = getenv("FAKE_NVML");
    return path ? path : "/etc/fakenvml.conf";
}

/* Add a file's lines to the scenario; returns how much of the text is used. */
static ssize_t read_lines(const char *path, ssize_t used) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got, size = used;
    if (fd < 0) return used;
    while ((got = read(fd, scenario.text + size, MOST_BYTES - 1 - size)) > 0) size += got;
    close(fd);
    scenario.text[size] = 0;
    char *rest = scenario.text + used, *line;
    while ((line = strsep(&rest, "\n")) && scenario.lines < MOST_LINES) {
        char *equals = strchr(line, '=');
        if (!equals || *trim(line) == '#') continue;
        *equals = 0;
        scenario.key[scenario.lines] = trim(line);
        scenario.value[scenario.lines++] = trim(equals + 1);
    }
    return size + 1 < MOST_BYTES ? size + 1 : size;
}

static void read_scenario(void) {
    char path[512];
    scenario.lines = 0;
    ssize_t used = read_lines(scenario_path(), 0);
    set_file(path, sizeof path);
    read_lines(path, used);
}

static const char *look_up(const char *key) {
    for (int i = scenario.lines; i-- > 0;)
        if (!strcmp(scenario.key[i], key)) return scenario.value[i];
    return NULL;
}

void set_file(char *out, size_t size) {
    const char *path = look_up("set_file");
    snprintf(out, size, "%s%s", path ? path : scenario_path(), path ? "" : ".set");
}

/* The value of NAME for a GPU (its own line, else the one of *), or of NAME itself for gpu < 0. */
const char *setting(int gpu, const char *format, ...) {
    char name[128], key[160];
    const char *found;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    if (gpu < 0) return look_up(name);
    snprintf(key, sizeof key, "%d.%s", gpu, name);
    if ((found = look_up(key))) return found;
    snprintf(key, sizeof key, "*.%s", name);
    return look_up(key);
}

const char *gpu_setting(gpu_t gpu, const char *name) {
    return gpu->instance ? setting(gpu->index, "mig%d.%s", gpu->instance - 1, name) : setting(gpu->index, "%s", name);
}

/* ---- what happens before a call answers: the log, a hang, an error ---- */

static const char *fault(const char *call, int gpu, const char *what) {
    const char *found = setting(-1, "%s.%s", call, what);
    if (!found && gpu >= 0) found = setting(gpu, "%s.%s", call, what);
    if (!found && gpu >= 0) found = setting(gpu, "%s", what);
    return found;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void hang(const char *call, int gpu) {
    const double began = seconds();
    const char *wanted;
    while ((wanted = fault(call, gpu, "hang"))) {
        double left = began + atof(wanted) - seconds();
        if (left <= 0) return;
        struct timespec nap = { 0, left < 0.02 ? (long)(left * 1e9) : 20000000 };
        nanosleep(&nap, NULL);
        read_scenario();
    }
}

static void write_away(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    if (write(fd, "x", 1) < 0) { /* it is the waiting that matters */ }
    close(fd);
}

static void log_call(const char *call, int gpu) {
    const char *path = getenv("FAKE_NVML_LOG");
    char line[160], who[16] = "-";
    int fd;
    if (!path || (fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) < 0) return;
    if (gpu >= 0) snprintf(who, sizeof who, "%d", gpu);
    int size = snprintf(line, sizeof line, "%d %s %s\n", (int)getpid(), call, who);
    if (write(fd, line, size) < 0) { /* a test that wants the log will see that it is missing */ }
    close(fd);
}

int enter(const char *call, int gpu) {
    log_call(call, gpu);
    read_scenario();
    const char *path = fault(call, gpu, "write");
    if (path) write_away(path);
    hang(call, gpu);
    const char *code = fault(call, gpu, "error");
    if (code && atoi(code)) return atoi(code);
    return initialised || !strcmp(call, "nvmlInit") ? SUCCESS : UNINITIALIZED;
}

int text_answer(const char *text, char *out, uint size) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

/* The word at a position of a list such as "95 89 - 87"; NULL when it is `-` or missing. */
const char *word_at(const char *text, int position, char *out, size_t size) {
    while (text && position-- > 0) {
        text += strcspn(text, " ");
        text += strspn(text, " ");
    }
    if (!text || !*text || (*text == '-' && (text[1] == 0 || text[1] == ' '))) return NULL;
    snprintf(out, size, "%.*s", (int)strcspn(text, " "), text);
    return out;
}

/* ---- the library ---- */

static int initialise(void) {
    int code = enter("nvmlInit", -1);
    if (code) return code;
    const char *device = getenv("FAKE_NVML_DEVICE");
    if (!device) device = setting(-1, "device");
    if (device && *device) {
        int fd = open(device, O_RDWR | O_CLOEXEC);
        if (fd >= 0) close(fd);
        else if (errno == EPERM || errno == EACCES) return NO_PERMISSION;
        else if (errno != ENXIO) return DRIVER_NOT_LOADED;
    }
    initialised = 1;
    return SUCCESS;
}
int nvmlInit_v2(void) { return initialise(); }
int nvmlInitWithFlags(uint flags) { (void)flags; return initialise(); }
int nvmlShutdown(void) { ENTER(-1); initialised = 0; return SUCCESS; }

const char *nvmlErrorString(int code) {
    static __thread char text[48];
    snprintf(text, sizeof text, "made-up error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *out, uint size) {
    ENTER(-1);
    const char *text = setting(-1, "driver");
    return text ? text_answer(text, out, size) : NOT_SUPPORTED;
}
int nvmlSystemGetNVMLVersion(char *out, uint size) {
    ENTER(-1);
    const char *text = setting(-1, "driver");
    char version[96];
    if (!text) return NOT_SUPPORTED;
    snprintf(version, sizeof version, "13.%s", text);
    return text_answer(version, out, size);
}

static uint gpu_count(void) {
    const char *text = setting(-1, "count");
    uint count = text ? strtoul(text, NULL, 0) : 0;
    return count < MOST_GPUS ? count : MOST_GPUS;
}
int nvmlDeviceGetCount_v2(uint *out) { ENTER(-1); *out = gpu_count(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(uint index, gpu_t *out) {
    if (index >= MOST_GPUS) return INVALID_ARGUMENT;
    ENTER((int)index);
    if (index >= gpu_count()) return INVALID_ARGUMENT;
    gpus[index].index = index;
    *out = &gpus[index];
    return SUCCESS;
}
static int find(const char *name, const char *wanted, gpu_t *out) {
    for (uint index = 0; index < gpu_count(); index++) {
        const char *text = setting(index, "%s", name);
        if (!text || strcasecmp(text, wanted)) continue;
        gpus[index].index = index;
        *out = &gpus[index];
        return SUCCESS;
    }
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t *out) { ENTER(-1); return find("uuid", uuid, out); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, gpu_t *out) { ENTER(-1); return find("pci", pci, out); }
int nvmlDeviceGetIndex(gpu_t gpu, uint *out) { ENTER_GPU(gpu); *out = gpu->index; return SUCCESS; }
int nvmlDeviceGetMinorNumber(gpu_t gpu, uint *out) { ENTER_GPU(gpu); *out = gpu->index; return SUCCESS; }
TEXT_CALL(nvmlDeviceGetUUID, "uuid")
TEXT_CALL(nvmlDeviceGetName, "name")
TEXT_CALL(nvmlDeviceGetSerial, "serial")

struct pci_info { char legacy[16]; uint domain, bus, device, id, subsystem; char text[32]; };
int nvmlDeviceGetPciInfo_v3(gpu_t gpu, struct pci_info *out) {
    uint function;
    ENTER_GPU(gpu);
    WANT(text, gpu, "pci");
    memset(out, 0, sizeof *out);
    if (sscanf(text, "%x:%x:%x.%x", &out->domain, &out->bus, &out->device, &function) != 4) return NOT_SUPPORTED;
    snprintf(out->text, sizeof out->text, "%08X:%02X:%02X.%X", out->domain, out->bus, out->device, function);
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.%X", out->domain & 0xffff, out->bus & 0xff,
             out->device & 0xff, function & 0xf);
    out->id = 0x233010de;
    return SUCCESS;
}

/* ---- heat ---- */

int nvmlDeviceGetTemperature(gpu_t gpu, int sensor, uint *out) {
    ENTER_GPU(gpu);
    if (sensor) return INVALID_ARGUMENT;
    WANT(text, gpu, "temperature");
    *out = (uint)strtol(text, NULL, 0);
    return SUCCESS;
}
struct temperature { uint version; int sensor, celsius; };
int nvmlDeviceGetTemperatureV(gpu_t gpu, struct temperature *out) {
    ENTER_GPU(gpu);
    if (out->version != 0x100000c) return VERSION_MISMATCH;
    WANT(text, gpu, "temperature");
    out->celsius = (int)strtol(text, NULL, 0);
    return SUCCESS;
}
struct margin { uint version; int celsius; };
int nvmlDeviceGetMarginTemperature(gpu_t gpu, struct margin *out) {
    ENTER_GPU(gpu);
    if (out->version != 0x1000008) return VERSION_MISMATCH;
    WANT(text, gpu, "margin");
    out->celsius = (int)strtol(text, NULL, 0);
    return SUCCESS;
}
int nvmlDeviceGetTemperatureThreshold(gpu_t gpu, int which, uint *out) {
    char word[32];
    ENTER_GPU(gpu);
    if (which < 0 || which > 7) return INVALID_ARGUMENT;
    if (which > 3 || !word_at(gpu_setting(gpu, "thresholds"), which, word, sizeof word)) return NOT_SUPPORTED;
    *out = strtoul(word, NULL, 0);
    return SUCCESS;
}

/* ---- field values: memory temperature (82), the T.Limit offsets (193-196), and those of minute.c ---- */

struct field { uint id, scope; long long at, latency; uint type; int code; union { double d; uint u; int i; ull l; } value; };
int nvmlDeviceGetFieldValues(gpu_t gpu, int count, struct field *fields) {
    char word[32];
    const char *text;
    ENTER_GPU(gpu);
    for (struct field *field = fields; field < fields + count; field++) {
        field->value.l = 0;
        field->code = NOT_SUPPORTED;
        if (field->id == 82 && (text = gpu_setting(gpu, "memory_temperature"))) {
            field->type = 1;
            field->value.u = (uint)strtol(text, NULL, 0);
            field->code = SUCCESS;
        } else if (field->id >= 193 && field->id <= 196
                   && (text = word_at(gpu_setting(gpu, "tlimits"), field->id - 193, word, sizeof word))) {
            field->type = 5;
            field->value.i = (int)strtol(text, NULL, 0);
            field->code = SUCCESS;
        } else if ((text = minute_field(gpu, field->id, field->scope, word, sizeof word))) {
            field->type = 3;
            field->value.l = strtoull(text, NULL, 0);
            field->code = SUCCESS;
        }
    }
    return SUCCESS;
}

/* ---- memory, load, power, clocks ---- */

static int memory(gpu_t gpu, ull *total, ull *reserved, ull *used) {
    WANT(text, gpu, "memory");
    return sscanf(text, "%llu %llu %llu", total, reserved, used) == 3 ? SUCCESS : NOT_SUPPORTED;
}
struct memory_v1 { ull total, free, used; };
int nvmlDeviceGetMemoryInfo(gpu_t gpu, struct memory_v1 *out) {
    ull reserved;
    ENTER_GPU(gpu);
    int code = memory(gpu, &out->total, &reserved, &out->used);
    if (code) return code;
    out->used += reserved; /* as the real first version does */
    out->free = out->total - out->used;
    return SUCCESS;
}
struct memory_v2 { uint version; ull total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(gpu_t gpu, struct memory_v2 *out) {
    ENTER_GPU(gpu);
    if (out->version != 0x2000028) return VERSION_MISMATCH;
    int code = memory(gpu, &out->total, &out->reserved, &out->used);
    if (code) return code;
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}
struct utilisation { uint gpu, memory; };
int nvmlDeviceGetUtilizationRates(gpu_t gpu, struct utilisation *out) {
    ENTER_GPU(gpu);
    WANT(text, gpu, "utilisation");
    return sscanf(text, "%u %u", &out->gpu, &out->memory) == 2 ? SUCCESS : NOT_SUPPORTED;
}
UINT_CALL(nvmlDeviceGetPowerUsage, "power")
UINT_CALL(nvmlDeviceGetEnforcedPowerLimit, "limit")
UINT_CALL(nvmlDeviceGetFanSpeed, "fan")
UINT_CALL(nvmlDeviceGetPerformanceState, "pstate")
int nvmlDeviceGetPowerManagementLimitConstraints(gpu_t gpu, uint *least, uint *most) {
    ENTER_GPU(gpu);
    WANT(text, gpu, "limits");
    return sscanf(text, "%u %u", least, most) == 2 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetPowerManagementDefaultLimit(gpu_t gpu, uint *out) {
    ENTER_GPU(gpu);
    WANT(text, gpu, "limits");
    return sscanf(text, "%*u %*u %u", out) == 1 ? SUCCESS : NOT_SUPPORTED;
}
#define CLOCK_CALL(call, name, answer) \
    int call(gpu_t gpu, int which, uint *out) { \
        char word[32]; \
        ENTER_GPU(gpu); \
        if (which < 0 || which > 3) return INVALID_ARGUMENT; \
        if (!word_at(gpu_setting(gpu, name), which, word, sizeof word)) return NOT_SUPPORTED; \
        uint mhz = strtoul(word, NULL, 0); \
        *out = (answer); \
        return SUCCESS; \
    }
CLOCK_CALL(nvmlDeviceGetClockInfo, "clocks", locked_clock(gpu, which, mhz))
CLOCK_CALL(nvmlDeviceGetMaxClockInfo, "max_clocks", mhz)
ULL_CALL(nvmlDeviceGetCurrentClocksEventReasons, "reasons")
ULL_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, "reasons")
ULL_CALL(nvmlDeviceGetSupportedClocksEventReasons, "supported_reasons")
ULL_CALL(nvmlDeviceGetSupportedClocksThrottleReasons, "supported_reasons")
ULL_CALL(nvmlDeviceGetTotalEnergyConsumption, "energy")

/* ---- processes ---- */

struct process { uint pid; ull used; uint gpu_instance, compute_instance; };
static int processes(gpu_t gpu, const char *name, uint *count, struct process *out) {
    const char *text = gpu_setting(gpu, name);
    uint found = 0, room = *count;
    for (; text && *(text += strspn(text, " ")); text += strcspn(text, " ")) {
        struct process process = { strtoul(text, NULL, 10), ~0ULL, ~0U, ~0U };
        const char *colon = strchr(text, ':');
        if (colon && colon[1] != '-') process.used = strtoull(colon + 1, NULL, 10);
        const char *second = colon ? strchr(colon + 1, ':') : NULL;
        if (second && second < text + strcspn(text, " ")) process.gpu_instance = strtoul(second + 1, NULL, 10);
        if (gpu->instance) process.gpu_instance = strtoul(gpu_setting(gpu, "ids"), NULL, 10);
        if (out && found < room) out[found] = process;
        found++;
    }
    *count = found;
    return found > (out ? room : 0) ? INSUFFICIENT_SIZE : SUCCESS;
}
#define PROCESSES_CALL(call, name) \
    int call(gpu_t gpu, uint *count, struct process *out) { \
        ENTER_GPU(gpu); \
        if (gpu_setting(gpu, "parent_lists")) return NOT_SUPPORTED; \
        return processes(gpu, name, count, out); \
    }
PROCESSES_CALL(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")
