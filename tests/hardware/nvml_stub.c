/* A libnvidia-ml.so.1 with two mismatched cards, listed in another order than their slots'.
 *
 * NVML_STUB_CARDS   how many of them there are (0 to 2)
 * NVML_STUB_NVLINK  the card that NVLink 1 of card 0 leads to; links from 2 on do not exist
 * NVML_STUB_FAIL    call:card:code entries, with commas between them; card is * where a call has
 *                   none. Such a call fails with that code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct {
    const char *name, *bus_id, *uuid;
    unsigned long long total, free;
    int major, minor;
    unsigned generation, width, max_generation, max_width, display;
} Card;

static const Card cards[] = {
    {"NVIDIA GeForce RTX 5060 Ti", "00000000:41:00.0", "GPU-5060", 17179869184ULL, 16642998272ULL,
     12, 0, 1, 8, 5, 8, 0},
    {"NVIDIA GeForce RTX 3060", "00000000:0A:00.0", "GPU-3060", 12884901888ULL, 11811160064ULL,
     8, 6, 3, 4, 4, 16, 1},
};

static int failure(const char *call, const Card *card) {
    const char *entries = getenv("NVML_STUB_FAIL");
    char wanted[96];
    if (card) snprintf(wanted, sizeof wanted, "%s:%d:", call, (int)(card - cards));
    else snprintf(wanted, sizeof wanted, "%s:*:", call);
    const char *entry = entries ? strstr(entries, wanted) : NULL;
    return entry ? atoi(entry + strlen(wanted)) : 0;
}

static void copy_pci(const char *bus_id, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    strcpy(pci->bus_id, bus_id);
}

#define CHECK(card) do { int code = failure(__func__, card); if (code) return code; } while (0)
#define TEXT(call, field) \
    int call(const Card *card, char *out, unsigned n) \
    { CHECK(card); snprintf(out, n, "%s", card->field); return 0; }
#define NUMBER(call, field) \
    int call(const Card *card, unsigned *out) { CHECK(card); *out = card->field; return 0; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; CHECK(NULL); return 0; }
int nvmlShutdown(void) { CHECK(NULL); return 0; }
int nvmlSystemGetDriverVersion(char *out, unsigned n)
{ CHECK(NULL); snprintf(out, n, "580.65.06"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *out)
{ CHECK(NULL); *out = atoi(getenv("NVML_STUB_CARDS")); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const Card **out)
{ CHECK(&cards[index]); *out = &cards[index]; return 0; }
int nvmlDeviceGetPciInfo_v3(const Card *card, Pci *out)
{ CHECK(card); copy_pci(card->bus_id, out); return 0; }
int nvmlDeviceGetMemoryInfo(const Card *card, Memory *out)
{ CHECK(card); *out = (Memory){card->total, card->free, card->total - card->free}; return 0; }
int nvmlDeviceGetCudaComputeCapability(const Card *card, int *major, int *minor)
{ CHECK(card); *major = card->major; *minor = card->minor; return 0; }
TEXT(nvmlDeviceGetName, name)
TEXT(nvmlDeviceGetUUID, uuid)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, width)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, max_generation)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, max_width)
NUMBER(nvmlDeviceGetDisplayMode, display)
NUMBER(nvmlDeviceGetDisplayActive, display)

int nvmlDeviceGetNvLinkState(const Card *card, unsigned link, unsigned *out) {
    CHECK(card);
    if (link > 1) return 2;
    *out = link == 1 && card == &cards[0] && getenv("NVML_STUB_NVLINK");
    return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const Card *card, unsigned link, Pci *out) {
    (void)link;
    CHECK(card);
    int peer = atoi(getenv("NVML_STUB_NVLINK"));
    copy_pci(peer < 2 ? cards[peer].bus_id : "00000000:FF:00.0", out);
    return 0;
}
int nvmlDeviceGetP2PStatus(const Card *a, const Card *b, int index, int *out)
{ (void)a; (void)b; (void)index; *out = 0; return 0; } /* it always says that it works */
