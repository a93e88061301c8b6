/* What gpuwatch reads once a minute, and MIG. Keys of the scenario, beside those in fakenvml.c:
 *
 *     N.ecc = CORRECTED UNCORRECTED CORRECTED_EVER UNCORRECTED_EVER        N.ecc_mode = 1
 *     N.rows = CORRECTABLE UNCORRECTABLE PENDING FAILED                    N.pages = CORRECTABLE UNCORRECTABLE PENDING
 *     N.pcie = GENERATION WIDTH MAX_GENERATION MAX_WIDTH REPLAYS
 *     N.nvlinks = 1 1 0 ...    the state of each link       N.nvlink_errors = REPLAY RECOVERY FLIT DATA   over all links
 *     N.nvlink5_errors = EFFECTIVE FAILED_RECOVERIES        of each link
 *     N.fabric = STATE STATUS HEALTH_MASK   N.persistence = 1   N.recovery = 0
 *     N.mig = CURRENT PENDING   N.migI.uuid   N.migI.ids = GPU_INSTANCE COMPUTE_INSTANCE   N.migI.name
 *     N.migI.memory, .compute, ... as of a GPU
 *     N.no_fields = 1          an old driver: none of the above comes as a field value
 */
#include "fakenvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INSTANCES = 7, MOST_GPUS = 64 };

/* A word of a key's list as the answer of a call. */
static int list_answer(gpu_t gpu, const char *name, int position, uint *out) {
    char word[32];
    if (!word_at(gpu_setting(gpu, name), position, word, sizeof word)) return NOT_SUPPORTED;
    *out = strtoul(word, NULL, 0);
    return SUCCESS;
}
#define LIST_CALL(call, name, position) \
    int call(gpu_t gpu, uint *out) { ENTER_GPU(gpu); return list_answer(gpu, name, position, out); }

static int link_count(gpu_t gpu) {
    char word[32];
    int count = 0;
    while (word_at(gpu_setting(gpu, "nvlinks"), count, word, sizeof word)) count++;
    return count;
}

const char *minute_field(gpu_t gpu, uint id, uint scope, char *out, size_t size) {
    static const struct { uint id; const char *name; int position; } known[] = {
        {1, "ecc_mode", 0}, {3, "ecc", 0}, {4, "ecc", 1}, {5, "ecc", 2}, {6, "ecc", 3},
        {29, "pages", 0}, {30, "pages", 1}, {31, "pages", 2}, {94, "pcie", 4}, {230, "recovery", 0},
        {52, "nvlink_errors", 0}, {59, "nvlink_errors", 1}, {38, "nvlink_errors", 2}, {45, "nvlink_errors", 3},
        {219, "nvlink5_errors", 0}, {214, "nvlink5_errors", 1},
    };
    if (gpu_setting(gpu, "no_fields")) return NULL;
    if (id == 91) {
        if (!gpu_setting(gpu, "nvlinks")) return NULL;
        snprintf(out, size, "%d", link_count(gpu));
        return out;
    }
    if ((id == 219 || id == 214) && (int)scope >= link_count(gpu)) return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == id) return word_at(gpu_setting(gpu, known[i].name), known[i].position, out, size);
    return NULL;
}

/* ---- memory errors ---- */

int nvmlDeviceGetEccMode(gpu_t gpu, uint *current, uint *pending) {
    ENTER_GPU(gpu);
    int code = list_answer(gpu, "ecc_mode", 0, current);
    *pending = *current;
    return code;
}
int nvmlDeviceGetTotalEccErrors(gpu_t gpu, int uncorrected, int ever, ull *out) {
    uint count = 0;
    ENTER_GPU(gpu);
    int code = list_answer(gpu, "ecc", uncorrected + 2 * ever, &count);
    *out = count;
    return code;
}
int nvmlDeviceGetRemappedRows(gpu_t gpu, uint *correctable, uint *uncorrectable, uint *pending, uint *failed) {
    ENTER_GPU(gpu);
    WANT(text, gpu, "rows");
    return sscanf(text, "%u %u %u %u", correctable, uncorrectable, pending, failed) == 4 ? SUCCESS : NOT_SUPPORTED;
}

/* ---- PCIe ---- */

LIST_CALL(nvmlDeviceGetCurrPcieLinkGeneration, "pcie", 0)
LIST_CALL(nvmlDeviceGetCurrPcieLinkWidth, "pcie", 1)
LIST_CALL(nvmlDeviceGetMaxPcieLinkGeneration, "pcie", 2)
LIST_CALL(nvmlDeviceGetMaxPcieLinkWidth, "pcie", 3)
LIST_CALL(nvmlDeviceGetPcieReplayCounter, "pcie", 4)

/* ---- NVLink and the fabric ---- */

int nvmlDeviceGetNvLinkState(gpu_t gpu, uint link, uint *active) {
    ENTER_GPU(gpu);
    if (!gpu_setting(gpu, "nvlinks")) return NOT_SUPPORTED;
    return (int)link < link_count(gpu) ? list_answer(gpu, "nvlinks", link, active) : INVALID_ARGUMENT;
}
int nvmlDeviceGetNvLinkErrorCounter(gpu_t gpu, uint link, int counter, ull *out) {
    uint count = 0;
    ENTER_GPU(gpu);
    if ((int)link >= link_count(gpu)) return INVALID_ARGUMENT;
    int code = list_answer(gpu, "nvlink_errors", counter, &count);
    *out = link ? 0 : count;
    return code;
}
static int fabric(gpu_t gpu, int *status, uint *state, uint *mask) {
    WANT(text, gpu, "fabric");
    return sscanf(text, "%u %d %u", state, status, mask) == 3 ? SUCCESS : NOT_SUPPORTED;
}
struct fabric_v2 { uint version; unsigned char cluster[16]; int status; uint clique; unsigned char state; uint mask; };
int nvmlDeviceGetGpuFabricInfoV(gpu_t gpu, struct fabric_v2 *out) {
    uint state;
    ENTER_GPU(gpu);
    if (out->version >> 24 != 2) return VERSION_MISMATCH;
    int code = fabric(gpu, &out->status, &state, &out->mask);
    if (!code) out->state = state;
    return code;
}
struct fabric { unsigned char cluster[16]; int status; uint clique; unsigned char state; };
int nvmlDeviceGetGpuFabricInfo(gpu_t gpu, struct fabric *out) {
    uint state, mask;
    ENTER_GPU(gpu);
    int code = fabric(gpu, &out->status, &state, &mask);
    if (!code) out->state = state;
    return code;
}

UINT_CALL(nvmlDeviceGetPersistenceMode, "persistence")

/* ---- MIG ---- */

static struct gpu instances[MOST_GPUS][MOST_INSTANCES];

int nvmlDeviceGetMigMode(gpu_t gpu, uint *current, uint *pending) {
    ENTER_GPU(gpu);
    WANT(text, gpu, "mig");
    return sscanf(text, "%u %u", current, pending) == 2 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(gpu_t gpu, uint *out) {
    ENTER_GPU(gpu);
    WANT(text, gpu, "mig");
    *out = *text ? MOST_INSTANCES : 0;
    return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(gpu_t gpu, uint index, gpu_t *out) {
    ENTER_GPU(gpu);
    if (index >= MOST_INSTANCES) return INVALID_ARGUMENT;
    struct gpu *instance = &instances[gpu->index][index];
    instance->index = gpu->index;
    instance->instance = index + 1;
    if (!gpu_setting(instance, "ids")) return NOT_FOUND;
    *out = instance;
    return SUCCESS;
}
LIST_CALL(nvmlDeviceGetGpuInstanceId, "ids", 0)
LIST_CALL(nvmlDeviceGetComputeInstanceId, "ids", 1)
