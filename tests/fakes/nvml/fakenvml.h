/* What the parts of the fake library share. The scenario is explained in fakenvml.c. */
#ifndef FAKENVML_H
#define FAKENVML_H

#include <stddef.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, VERSION_MISMATCH = 25, UNKNOWN = 999
};

typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct gpu { int index, instance; } *gpu_t; /* instance: 0 for the GPU itself, else one more than MIG's index */

int enter(const char *call, int gpu); /* log, hang, fail as the scenario says */
const char *setting(int gpu, const char *format, ...);
const char *gpu_setting(gpu_t gpu, const char *name); /* NAME of a GPU, or migI.NAME of its instance */
const char *word_at(const char *text, int position, char *out, size_t size);
int text_answer(const char *text, char *out, uint size);
void set_file(char *out, size_t size); /* where changes are kept */
uint locked_clock(gpu_t gpu, int which, uint mhz);
const char *minute_field(gpu_t gpu, uint id, uint scope, char *out, size_t size);

#define ENTER(gpu_index) do { int code_ = enter(__func__, (gpu_index)); if (code_) return code_; } while (0)
#define ENTER_GPU(gpu) do { if (!(gpu)) return INVALID_ARGUMENT; ENTER((gpu)->index); } while (0)
#define WANT(text, gpu, name) const char *text = gpu_setting(gpu, name); if (!text) return NOT_SUPPORTED
#define UINT_CALL(call, name) \
    int call(gpu_t gpu, uint *out) { ENTER_GPU(gpu); WANT(text, gpu, name); *out = strtoul(text, NULL, 0); return SUCCESS; }
#define ULL_CALL(call, name) \
    int call(gpu_t gpu, ull *out) { ENTER_GPU(gpu); WANT(text, gpu, name); *out = strtoull(text, NULL, 0); return SUCCESS; }
#define TEXT_CALL(call, name) \
    int call(gpu_t gpu, char *out, uint size) { ENTER_GPU(gpu); WANT(text, gpu, name); return text_answer(text, out, size); }

#endif
