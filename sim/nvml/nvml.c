// NVIDIA's management library for the simulated GPUs, as far as p2pshim asks it: libnvidia-ml.so.1.
//
// It works if P2PSIM_NVLINK names a folder (core/src/nvlink.rs), and has the counters and processes that are there.
// P2PSIM_NVML says what goes wrong: `fail` (no start), `hang` (the start never ends), `hang:N` (only the first N questions
// for counters are answered), `blind` (no process is listed), `old` (there are no counters); or of what kind the machine is:
// `pci` (no NVLink joins the devices), `mig`, `confidential` (that mode is on; neither does one there), `links` (the second
// device has two links less), `fabric` (nobody has joined the fabric), `cliques` (each device is in a clique of its own), `cluster` (the fabric is of several machines),
// `vgpu`.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9 };
enum { SENT = 138, RECEIVED = 139, LINK_SPEED = 164, ALL_LINKS = -1, LINKS = 18, MOST = 64 };

// nvmlFieldValue_t
struct field {
    unsigned id, scope;
    long long time, took;
    int type, result;
    unsigned long long value;
};

// nvmlProcessInfo_t
struct process {
    unsigned id;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static int fault(const char *name) {
    const char *wanted = getenv("P2PSIM_NVML");
    return wanted != NULL && strcmp(wanted, name) == 0;
}

static int is_pci(void) {
    return fault("pci") || fault("mig") || fault("confidential");
}

static void hang(void) {
    for (;;) pause();
}

static const char *folder(void) {
    const char *name = getenv("P2PSIM_NVLINK");
    return name != NULL && *name != 0 ? name : NULL;
}

static unsigned devices(void) {
    const char *number = getenv("P2PSIM_DEVICES");
    unsigned count = number != NULL ? (unsigned)strtoul(number, NULL, 10) : 2;
    return count <= MOST ? count : MOST;
}

// A handle is the number of the device, and 1.
static unsigned number_of(void *device) {
    return (unsigned)(size_t)device - 1;
}

static int known(void *device) {
    return number_of(device) < devices();
}

// Measured, of driver 580.159.
const char *nvmlErrorString(int code) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "vGPU ECC not supported", "Insufficient Resources", "Invalid Frequency", "Argument version mismatch",
        "Requested functionality has been deprecated", "System is not in ready state", "No supported GPUs were found",
        "Resource not in correct state to perform requested operation",
        "Reset type is not supported for given device",
    };
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "Unknown Error";
}

int nvmlInit_v2(void) {
    if (fault("hang")) hang();
    return folder() == NULL || fault("fail") ? NO_DRIVER : OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = devices();
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= devices()) return INVALID;
    *device = (void *)(size_t)(index + 1);
    return OK;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    if (!known(device)) return INVALID;
    // As the simulated driver has it.
    int needed = snprintf(uuid, length, "GPU-70327073-696d-2047-5055-202e2e2e2e%02x", number_of(device));
    return needed < (int)length ? OK : TOO_SMALL;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    char own[80];
    for (unsigned index = 0; nvmlDeviceGetHandleByIndex_v2(index, device) == OK; index++)
        if (nvmlDeviceGetUUID(*device, own, sizeof own) == OK && strcmp(own, uuid) == 0) return OK;
    return NOT_FOUND;
}

// Little-endian, as the machine is.
static unsigned long long traffic(unsigned device, int is_received) {
    char path[4096];
    unsigned long long bytes = 0;
    snprintf(path, sizeof path, "%s/traffic", folder());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (pread(file, &bytes, sizeof bytes, device * 16 + (is_received ? 8 : 0)) != sizeof bytes) bytes = 0;
    close(file);
    return bytes;
}

int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields) {
    static unsigned asked;
    unsigned allowed;
    const char *wanted = getenv("P2PSIM_NVML");
    if (wanted != NULL && sscanf(wanted, "hang:%u", &allowed) == 1 && asked++ >= allowed) hang();
    if (!known(device)) return INVALID;
    for (int at = 0; at < count; at++) {
        struct field *field = &fields[at];
        if (field->id == LINK_SPEED && field->scope < LINKS) {
            // MB/s of a link of an H100.
            field->result = is_pci() ? UNSUPPORTED : OK;
            field->type = 1;
            field->value = 26562;
            continue;
        }
        int is_known = (field->id == SENT || field->id == RECEIVED) && field->scope == (unsigned)ALL_LINKS;
        field->result = is_known && !fault("old") ? OK : UNSUPPORTED;
        // NVML_VALUE_TYPE_UNSIGNED_LONG_LONG; the unit is KiB.
        field->type = 3;
        field->value = field->result == OK ? traffic(number_of(device), field->id == RECEIVED) >> 10 : 0;
    }
    return OK;
}

// Each process uses each device. A file that is not empty stands for a process that this machine does not show.
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    char path[4096];
    struct dirent *entry;
    unsigned room = *count, found = 0;
    if (!known(device)) return INVALID;
    *count = 0;
    snprintf(path, sizeof path, "%s/processes", folder());
    DIR *all = fault("blind") ? NULL : opendir(path);
    if (all == NULL) return OK;
    while ((entry = readdir(all)) != NULL) {
        long id = strtol(entry->d_name, NULL, 10);
        char probe[8];
        int file = id > 0 ? openat(dirfd(all), entry->d_name, O_RDONLY | O_CLOEXEC) : -1;
        if (file < 0) continue;
        int is_elsewhere = read(file, probe, sizeof probe) > 0;
        close(file);
        if (!is_elsewhere && kill((pid_t)id, 0) != 0 && errno == ESRCH) continue;
        if (found < room) processes[found] = (struct process){.id = (unsigned)id};
        found++;
    }
    closedir(all);
    *count = found;
    return found <= room ? OK : TOO_SMALL;
}

int nvmlDeviceGetBAR1MemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = memory[1] = 256ULL << 30;
    memory[2] = 0;
    return known(device) ? OK : INVALID;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) {
    *now = *later = (unsigned)fault("mig");
    return known(device) ? OK : INVALID;
}

// nvmlConfComputeSystemState_t: environment, feature, tools for developers.
int nvmlSystemGetConfComputeState(unsigned *state) {
    state[0] = state[2] = 0;
    state[1] = (unsigned)fault("confidential");
    return OK;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *state) {
    *state = !is_pci() && !(fault("links") && number_of(device) == 1 && link >= LINKS - 2);
    return known(device) && link < LINKS ? OK : INVALID;
}

// nvmlPciInfo_t
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char address[32];
};

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    if (pci == NULL) return INVALID;
    // As the simulated driver has it, with a longer domain.
    *pci = (struct pci){.bus = number_of(device) + 1};
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02x:00.0", pci->bus);
    snprintf(pci->address, sizeof pci->address, "00000000:%02x:00.0", pci->bus);
    return known(device) ? OK : INVALID;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    snprintf(name, length, "Simulated GPU");
    return known(device) ? OK : INVALID;
}

// NVML_NVLINK_VERSION_4_0
int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version) {
    *version = 6;
    return known(device) && link < LINKS ? OK : INVALID;
}

// NVSwitches are at the far ends.
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci) {
    *pci = (struct pci){.bus = 0xc0 + link % 4};
    snprintf(pci->address, sizeof pci->address, "00000000:%02x:00.0", pci->bus);
    return known(device) && link < LINKS ? OK : INVALID;
}

// NVML_NVLINK_DEVICE_TYPE_SWITCH
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *type) {
    *type = 2;
    return known(device) && link < LINKS ? OK : INVALID;
}

// NVML_GPU_VIRTUALIZATION_MODE_VGPU
int nvmlDeviceGetVirtualizationMode(void *device, unsigned *mode) {
    *mode = fault("vgpu") ? 2 : 0;
    return known(device) ? OK : INVALID;
}

// nvmlGpuFabricInfo_v3_t
struct fabric {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
    unsigned health;
    unsigned char summary;
};

int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric *fabric) {
    if (!known(device) || fabric->version != (3 << 24 | sizeof *fabric)) return INVALID;
    // Not started, completed; all health is well.
    fabric->state = is_pci() ? 0 : fault("fabric") ? 1 : 3;
    fabric->clique = fault("cliques") ? number_of(device) : 0;
    memset(fabric->cluster, fault("cluster") ? 0x3f : 0, sizeof fabric->cluster);
    fabric->health = 0x1aa;
    fabric->summary = 1;
    return OK;
}

// Whether one device has a path to another.
static int has_path(unsigned from, unsigned to) {
    const char *list = getenv("P2PSIM_NO_P2P");
    for (; list != NULL && *list != 0; list += *list == ',') {
        unsigned one, other;
        char way;
        if (sscanf(list, " %u%c%u", &one, &way, &other) == 3 &&
            ((one == from && other == to) || (way == '-' && one == to && other == from)))
            return 0;
        list += strcspn(list, ",");
    }
    return 1;
}

int nvmlDeviceGetP2PStatus(void *one, void *other, int index, int *status) {
    if (status == NULL) return INVALID;
    // NVML_P2P_CAPS_INDEX_NVLINK; NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED. Two H100 say OK of a device and itself. Two H200 say
    // NVML_P2P_STATUS_NOT_SUPPORTED of NVML_P2P_CAPS_INDEX_PCI, since NVLink connects them.
    int has_it = has_path(number_of(one), number_of(other)) && (index != 2 || !is_pci());
    *status = one == other ? OK : !has_it ? 1 : index == 4 && !is_pci() ? 5 : OK;
    return known(one) && known(other) ? OK : INVALID;
}
