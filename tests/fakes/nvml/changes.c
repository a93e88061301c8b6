/* What can be set: the power limit and locked clocks. Keys of the scenario, beside those in fakenvml.c:
 *
 *     set_file = PATH          where it is kept; without it, beside the scenario, with ".set" behind its name. It holds lines
 *                              like the scenario's, one a write, that count after those: N.limit, N.locked = MIN MAX (MHz,
 *                              empty: not locked). Another tool that changes a limit is a line that a test adds to it.
 *     needs_admin = 1          as the real driver: no permission without CAP_SYS_ADMIN
 *     N.limit_step = MW        the card rounds a limit down to a multiple of it, also below its own minimum (A16)
 *     N.limit_reverts = READS  the limit is back at its old value after so many reads (A15)
 * Refusals are faults: N.nvmlDeviceSetPowerManagementLimit.error = 4 and the like.
 */
#include "fakenvml.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_GPUS = 64, CAP_SYS_ADMIN = 21 };

static struct { int armed, reads_left; uint before; } reverts[MOST_GPUS];

static int administrator(void) {
    char line[256];
    ull capabilities = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "CapEff: %llx", &capabilities) == 1) break;
    if (status) fclose(status);
    return capabilities >> CAP_SYS_ADMIN & 1;
}

static int allowed(void) { return setting(-1, "needs_admin") && !administrator() ? NO_PERMISSION : SUCCESS; }

/* Add "N.NAME = VALUE" to the file. */
static int keep(gpu_t gpu, const char *name, const char *format, ...) {
    char path[512], value[64], line[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    set_file(path, sizeof path);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return UNKNOWN;
    int size = snprintf(line, sizeof line, "%d.%s = %s\n", gpu->index, name, value);
    int whole = write(fd, line, size) == size;
    close(fd);
    return whole ? SUCCESS : UNKNOWN;
}

int nvmlDeviceSetPowerManagementLimit(gpu_t gpu, uint limit) {
    uint least, most;
    ENTER_GPU(gpu);
    int code = allowed();
    if (code) return code;
    WANT(limits, gpu, "limits");
    WANT(before, gpu, "limit");
    if (sscanf(limits, "%u %u", &least, &most) != 2) return NOT_SUPPORTED;
    if (limit < least || limit > most) return INVALID_ARGUMENT;
    const char *step = gpu_setting(gpu, "limit_step"), *reads = gpu_setting(gpu, "limit_reverts");
    if (step) limit -= limit % strtoul(step, NULL, 0);
    reverts[gpu->index].armed = reads != NULL;
    reverts[gpu->index].reads_left = reads ? atoi(reads) : 0;
    reverts[gpu->index].before = strtoul(before, NULL, 0);
    return keep(gpu, "limit", "%u", limit);
}

int nvmlDeviceGetPowerManagementLimit(gpu_t gpu, uint *out) {
    ENTER_GPU(gpu);
    WANT(text, gpu, "limit");
    *out = strtoul(text, NULL, 0);
    if (!reverts[gpu->index].armed || reverts[gpu->index].reads_left-- > 0) return SUCCESS;
    reverts[gpu->index].armed = 0;
    *out = reverts[gpu->index].before;
    return keep(gpu, "limit", "%u", *out);
}

int nvmlDeviceSetGpuLockedClocks(gpu_t gpu, uint least, uint most) {
    ENTER_GPU(gpu);
    int code = allowed();
    if (code) return code;
    return least <= most ? keep(gpu, "locked", "%u %u", least, most) : INVALID_ARGUMENT;
}

int nvmlDeviceResetGpuLockedClocks(gpu_t gpu) {
    ENTER_GPU(gpu);
    int code = allowed();
    return code ? code : keep(gpu, "locked", "");
}

/* A clock within the lock; graphics and SM clock go together. */
uint locked_clock(gpu_t gpu, int which, uint mhz) {
    uint least, most;
    const char *text = gpu_setting(gpu, "locked");
    if (which > 1 || !text || sscanf(text, "%u %u", &least, &most) != 2) return mhz;
    return mhz < least ? least : mhz > most ? most : mhz;
}
