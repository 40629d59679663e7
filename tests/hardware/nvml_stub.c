/* A libnvidia-ml.so.1 that answers as the real one does, for a few machines.
 *
 * NVML_STUB_MACHINE mixed (the default): an RTX 5060 Ti and an RTX 3060, listed in another order
 *                   than their slots'; quad: four RTX 3090 with NVLink bridges on two pairs; eight:
 *                   eight A100 on an NVSwitch; mig: one H100 cut in two slices; wsl: one RTX 4090 as
 *                   WSL shows it; spark: one GB10, whose memory is the processor's
 * NVML_STUB_SLICES  how many slices the H100 has (2). The first is number 0 and the second 2; in the
 *                   entries below they are cards 90 and 92
 * NVML_STUB_CARDS   how many of its cards there are (all of them)
 * NVML_STUB_NVLINK  on mixed, the card that port 1 of card 0 leads to; there is no port from 2 on
 * NVML_STUB_FAIL    call:card:code entries, with commas between them; card is * where a call has
 *                   none. Such a call fails with that code. The call "all" is every call of a card
 *                   but those that find it, its name and its memory.
 * NVML_STUB_HANG    call:card of a call that never returns
 * NVML_STUB_CRASH   call:card of a call that takes the process down
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory2;
typedef struct {
    unsigned processors, copy, decoders, encoders, jpeg, flow, slices, compute_slices; u64 mebibytes;
} Attributes;
typedef struct { u64 total, free, used; } Bar1;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { unsigned version, sensor; int temperature; } Temperature;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } Process;
typedef struct {
    unsigned id, scope; long long timestamp, latency; unsigned type, status;
    union { double d; unsigned u; u64 ull; } value;
} Field;
typedef struct {
    const char *name, *bus_id, *uuid;
    u64 total, free, reserved;
    int major, minor;
    unsigned architecture, generation, width, max_generation, max_width, card_generation, display;
} Card;

#define GIB 1073741824ULL
#define MIB 1048576ULL
#define RTX_3090(bus, uuid) {"NVIDIA GeForce RTX 3090", bus, uuid, 24 * GIB, 23 * GIB, 350 * MIB, \
    8, 6, 7, 1, 16, 4, 16, 4, 0}
#define A100(bus, uuid) {"NVIDIA A100-SXM4-80GB", bus, uuid, 80 * GIB, 79 * GIB, 600 * MIB, \
    8, 0, 7, 4, 16, 4, 16, 4, 0}

static const Card mixed[] = {
    {"NVIDIA GeForce RTX 5060 Ti", "00000000:41:00.0", "GPU-5060", 17179869184ULL, 16642998272ULL,
     300 * MIB, 12, 0, 10, 1, 8, 5, 8, 5, 0},
    {"NVIDIA GeForce RTX 3060", "00000000:0A:00.0", "GPU-3060", 12884901888ULL, 11811160064ULL,
     200 * MIB, 8, 6, 7, 3, 4, 3, 16, 4, 1},
};
static const Card quad[] = {
    RTX_3090("00000000:01:00.0", "GPU-a"), RTX_3090("00000000:02:00.0", "GPU-b"),
    RTX_3090("00000000:41:00.0", "GPU-c"), RTX_3090("00000000:42:00.0", "GPU-d"),
};
static const Card eight[] = {
    A100("00000000:07:00.0", "GPU-0"), A100("00000000:0B:00.0", "GPU-1"),
    A100("00000000:48:00.0", "GPU-2"), A100("00000000:4C:00.0", "GPU-3"),
    A100("00000000:88:00.0", "GPU-4"), A100("00000000:8B:00.0", "GPU-5"),
    A100("00000000:C8:00.0", "GPU-6"), A100("00000000:CB:00.0", "GPU-7"),
};
static const Card mig[] = {{"NVIDIA H100 PCIe", "00000000:81:00.0", "GPU-h", 80 * GIB, 79 * GIB,
    600 * MIB, 9, 0, 9, 5, 16, 5, 16, 5, 0}};
/* By the driver's numbers of them, where 1 is empty. The second has a name without its profile. */
static const Card slices[] = {
    {"NVIDIA H100 PCIe MIG 1g.10gb", "", "MIG-one", 9856 * MIB, 9800 * MIB, 20 * MIB,
        0, 0, 0, 0, 0, 0, 0, 0, 0},
    {0},
    {"NVIDIA H100 PCIe", "", "MIG-three", 40320 * MIB, 30000 * MIB, 50 * MIB,
        0, 0, 0, 0, 0, 0, 0, 0, 0},
};
static const Card wsl[] = {{"NVIDIA GeForce RTX 4090", "00000000:01:00.0", "GPU-w", 24 * GIB,
    22 * GIB, 400 * MIB, 8, 9, 8, 4, 16, 4, 16, 4, 1}};
static const Card spark[] = {{"NVIDIA GB10", "0000000F:01:00.0", "GPU-s", 0, 0, 0,
    12, 1, 10, 1, 1, 5, 16, 5, 0}};

static const struct { const char *name; const Card *cards; int count; } machines[] = {
    {"mixed", mixed, 2}, {"quad", quad, 4}, {"eight", eight, 8},
    {"mig", mig, 1}, {"wsl", wsl, 1}, {"spark", spark, 1},
};

static int machine(void) {
    const char *wanted = getenv("NVML_STUB_MACHINE");
    for (int i = 0; wanted && i < 6; i++) if (!strcmp(wanted, machines[i].name)) return i;
    return 0;
}
static int is(const char *name) { return !strcmp(machines[machine()].name, name); }
static int is_slice(const Card *card) { return card >= slices && card < slices + 3; }
static int number(const Card *card) {
    if (is_slice(card)) return 90 + (int)(card - slices);
    return card ? (int)(card - machines[machine()].cards) : -1;
}

static const char *entry(const char *variable, const char *call, const Card *card, const char *end) {
    const char *entries = getenv(variable);
    char wanted[96];
    if (card) snprintf(wanted, sizeof wanted, "%s:%d%s", call, number(card), end);
    else snprintf(wanted, sizeof wanted, "%s:*%s", call, end);
    const char *found = entries ? strstr(entries, wanted) : NULL;
    return found ? found + strlen(wanted) : NULL;
}
static int failure(const char *call, const Card *card) {
    if (entry("NVML_STUB_HANG", call, card, "")) for (;;) pause();
    if (entry("NVML_STUB_CRASH", call, card, "")) raise(SIGSEGV);
    const char *code = entry("NVML_STUB_FAIL", call, card, ":");
    const char *finding = "HandleByIndex_v2 PciInfo_v3 Name MemoryInfo MemoryInfo_v2";
    if (!code && card && !strstr(finding, call + strlen("nvmlDeviceGet")))
        code = entry("NVML_STUB_FAIL", "all", card, ":");
    const char *of_slices = "Name UUID MemoryInfo MemoryInfo_v2 Attributes_v2 "
        "ComputeRunningProcesses_v3 GraphicsRunningProcesses_v3";
    if (!code && is_slice(card) && !strstr(of_slices, call + strlen("nvmlDeviceGet"))) return 3;
    return code ? atoi(code) : 0;
}
static void copy_pci(const char *bus_id, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    strcpy(pci->bus_id, bus_id);
}

#define CHECK(card) do { int code = failure(__func__, card); if (code) return code; } while (0)
#define TEXT(call, field) \
    int call(const Card *card, char *out, unsigned n) \
    { CHECK(card); snprintf(out, n, "%s", card->field); return 0; }
#define NUMBER(call, value) \
    int call(const Card *card, unsigned *out) { CHECK(card); *out = (value); return 0; }
#define PAIR(call, first, second) \
    int call(const Card *card, unsigned *a, unsigned *b) \
    { CHECK(card); *a = (first); *b = (second); return 0; }
#define ONLY(condition) if (!(condition)) return 3

int nvmlInitWithFlags(unsigned flags) { (void)flags; CHECK(NULL); return 0; }
int nvmlShutdown(void) { CHECK(NULL); return 0; }
int nvmlSystemGetDriverVersion(char *out, unsigned n)
{ CHECK(NULL); snprintf(out, n, "580.65.06"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { CHECK(NULL); *out = 13000; return 0; }
int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned n)
{ CHECK(NULL); snprintf(out, n, "/home/somebody/bin/render-%u --key=secret", pid); return 0; }
int nvmlDeviceGetCount_v2(unsigned *out) {
    CHECK(NULL);
    const char *count = getenv("NVML_STUB_CARDS");
    *out = count && *count ? (unsigned)atoi(count) : (unsigned)machines[machine()].count;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const Card **out)
{ const Card *card = machines[machine()].cards + index; CHECK(card); *out = card; return 0; }
int nvmlDeviceGetPciInfo_v3(const Card *card, Pci *out)
{ CHECK(card); copy_pci(card->bus_id, out); return 0; }
int nvmlDeviceGetMemoryInfo(const Card *card, Memory *out) {
    CHECK(card);
    ONLY(!is("spark"));
    *out = (Memory){card->total, card->free, card->total - card->free};
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(const Card *card, Memory2 *out) {
    CHECK(card);
    ONLY(!is("spark"));
    if (out->version != 0x02000028) return 25;
    u64 used = card->total - card->free - card->reserved;
    *out = (Memory2){out->version, card->total, card->reserved, card->free, used};
    return 0;
}
int nvmlDeviceGetBAR1MemoryInfo(const Card *card, Bar1 *out) {
    CHECK(card);
    u64 size = is("quad") ? 32 * GIB : 256 * MIB;
    *out = (Bar1){size, size - 16 * MIB, 16 * MIB};
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(const Card *card, int *major, int *minor)
{ CHECK(card); *major = card->major; *minor = card->minor; return 0; }
TEXT(nvmlDeviceGetName, name)
TEXT(nvmlDeviceGetUUID, uuid)
NUMBER(nvmlDeviceGetIndex, (unsigned)number(card))
NUMBER(nvmlDeviceGetArchitecture, card->architecture)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, card->generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, card->width)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, card->max_generation)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, card->max_width)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, card->card_generation)
NUMBER(nvmlDeviceGetPcieReplayCounter, 7)
NUMBER(nvmlDeviceGetDisplayActive, card->display)
NUMBER(nvmlDeviceGetPowerUsage, 25500)
NUMBER(nvmlDeviceGetPowerManagementLimit, 250000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 350000)
NUMBER(nvmlDeviceGetPerformanceState, 8)
NUMBER(nvmlDeviceGetPersistenceMode, 1)
NUMBER(nvmlDeviceGetComputeMode, is("eight") ? 3 : 0)
NUMBER(nvmlDeviceGetVirtualizationMode, 0)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, 100000, 390000)

int nvmlDeviceGetDisplayMode(const Card *card, unsigned *out)
{ CHECK(card); *out = card->display; return is("quad") ? 26 : 0; }
int nvmlDeviceGetUtilizationRates(const Card *card, Rates *out)
{ CHECK(card); ONLY(!is("mig")); *out = (Rates){42, 17}; return 0; }
int nvmlDeviceGetEccMode(const Card *card, unsigned *now, unsigned *pending)
{ CHECK(card); ONLY(is("eight") || is("mig")); *now = *pending = 1; return 0; }
int nvmlDeviceGetTotalEccErrors(const Card *card, int kind, int since, u64 *out)
{ CHECK(card); *out = kind == 1 && since == 1 ? 3 : 0; return 0; }
int nvmlDeviceGetRemappedRows(
    const Card *card, unsigned *corrected, unsigned *not, unsigned *pending, unsigned *failed) {
    CHECK(card);
    ONLY(is("eight") || is("mig"));
    *corrected = 0, *not = 2, *pending = number(card) == 5, *failed = 0;
    return 0;
}
int nvmlDeviceGetMigMode(const Card *card, unsigned *now, unsigned *pending)
{ CHECK(card); ONLY(is("eight") || is("mig")); *now = *pending = is("mig"); return 0; }
int nvmlDeviceGetMaxMigDeviceCount(const Card *card, unsigned *out)
{ CHECK(card); *out = is("mig") ? 7 : 0; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(const Card *card, unsigned index, const Card **out) {
    CHECK(card);
    const char *count = getenv("NVML_STUB_SLICES");
    int most = count && *count ? atoi(count) : 2;
    if (index > 2 || index == 1 || (int)(index + 1) / 2 >= most) return 6;
    *out = slices + index;
    return 0;
}
int nvmlDeviceGetAttributes_v2(const Card *card, Attributes *out)
{ CHECK(card); *out = (Attributes){60, 3, 3, 0, 3, 0, 3, 3, 40448}; return 0; }
int nvmlDeviceGetNumaNodeId(const Card *card, int *out)
{ CHECK(card); ONLY(is("eight")); *out = number(card) / 4; return 0; }
int nvmlDeviceGetDriverModel_v2(const Card *card, unsigned *now, unsigned *pending)
{ CHECK(card); ONLY(is("wsl")); *now = *pending = 0; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(const Card *card, u64 *out)
{ CHECK(card); *out = 0x1044; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(const Card *card, u64 *out)
{ CHECK(card); *out = 0x1; return 0; }
int nvmlDeviceGetClockInfo(const Card *card, int kind, unsigned *out)
{ CHECK(card); *out = kind == 2 ? 405 : 210; return 0; }
int nvmlDeviceGetMaxClockInfo(const Card *card, int kind, unsigned *out)
{ CHECK(card); *out = kind == 2 ? 9751 : 2100; return 0; }
int nvmlDeviceGetTemperatureV(const Card *card, Temperature *out)
{ CHECK(card); out->temperature = 61; return 0; }
int nvmlDeviceGetTemperature(const Card *card, int sensor, unsigned *out)
{ (void)sensor; CHECK(card); *out = 60; return 0; }
int nvmlDeviceGetTemperatureThreshold(const Card *card, int which, unsigned *out)
{ CHECK(card); *out = which == 1 ? 95 : 98; return 0; }

/* One program that computes, one that draws, and one that does both; pids no system gives. */
static int processes(unsigned first, unsigned *count, Process *out) {
    unsigned room = *count;
    *count = 2;
    if (room < 2 || !out) return 7;
    for (unsigned i = 0; i < 2; i++) {
        u64 used = is("wsl") ? ~0ULL : (first + i) * 100 * MIB;
        out[i] = (Process){4194305 + first + i, used, ~0U, ~0U};
    }
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(const Card *card, unsigned *count, Process *out)
{ CHECK(card); return processes(1, count, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(const Card *card, unsigned *count, Process *out)
{ CHECK(card); return processes(2, count, out); }

/* ------------------------------------------------------------------------------- pairs */

static int bridged(int a, int b) { return is("quad") && a / 2 == b / 2; }

int nvmlDeviceGetNvLinkState(const Card *card, unsigned link, unsigned *out) {
    CHECK(card);
    unsigned ports = is("mixed") ? 2 : is("quad") ? 4 : is("eight") ? 12 : 0;
    if (link >= ports) return 2;
    int up = link == 1 && card == &mixed[0] && getenv("NVML_STUB_NVLINK");
    *out = is("mixed") ? up : 1;
    return 0;
}
int nvmlDeviceGetNvLinkVersion(const Card *card, unsigned link, unsigned *out)
{ (void)link; CHECK(card); *out = 5; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(const Card *card, unsigned link, unsigned *out)
{ (void)link; CHECK(card); *out = is("eight") ? 2 : 0; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const Card *card, unsigned link, Pci *out) {
    (void)link;
    CHECK(card);
    if (is("quad")) { copy_pci(quad[number(card) ^ 1].bus_id, out); return 0; }
    int peer = atoi(getenv("NVML_STUB_NVLINK"));
    copy_pci(peer < 2 ? mixed[peer].bus_id : "00000000:FF:00.0", out);
    return 0;
}
int nvmlDeviceGetFieldValues(const Card *card, int count, Field *values) {
    CHECK(card);
    for (int i = 0; i < count; i++) {
        values[i].status = values[i].id == 164 ? 0 : 3;
        values[i].value.u = 14062;
    }
    return 0;
}
/* Reads and writes work over a bridge or a switch; atomics only over a switch. On mixed cards NVML
 * says that all of it works. */
int nvmlDeviceGetP2PStatus(const Card *a, const Card *b, int index, int *out) {
    CHECK(a);
    if (is("quad")) *out = !bridged(number(a), number(b)) ? 1 : index == 3 ? 5 : 0;
    else *out = 0;
    return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(const Card *a, const Card *b, int *out) {
    CHECK(a);
    *out = number(a) / 2 == number(b) / 2 ? 20 : number(a) / 4 == number(b) / 4 ? 40 : 50;
    return 0;
}
