/**
 * A CUDA driver that shows one GPU as several: devices 0 to N - 1, N from ONE_GPU_DEVICES (2), are all the real device 0 and
 * share its primary context. Only functions that take or give a device are here, and those that load code; for all others the
 * loader finds the real library, which this one is linked against. Of the multiprocessors each device has its share: blocks
 * that wait for each other must all find their places, those of every rank.
 *
 * A driver loads code only when nothing runs in the context, and a kernel of one rank may wait for another rank that is about to
 * load the same code. So code that is there is not loaded again, and stays.
 * Built by build.sh; README.md says what it is for.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef REAL_DRIVER
#define REAL_DRIVER "libcuda.so.1"
#endif

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_FOUND = 500, INVALID_DEVICE = 101, MULTIPROCESSOR_COUNT = 16, MOST_DEVICES = 8 };

static int num_devices(void) {
  const char *text = getenv("ONE_GPU_DEVICES");
  const int n = text ? atoi(text) : 2;
  return n < 1 ? 1 : n > MOST_DEVICES ? MOST_DEVICES : n;
}
static int is_shown(int device) { return device >= 0 && device < num_devices(); }

static void *real(const char *name) {
  static void *library;
  if (!library) library = dlopen(REAL_DRIVER, RTLD_NOW | RTLD_LOCAL);
  return library ? dlsym(library, name) : NULL;
}

/* `next` is the real function of the same name. */
#define REAL(types)                               \
  static int(*next) types;                        \
  if (!next) next = (int(*) types)real(__func__); \
  if (!next) return NOT_FOUND

/* Passes a call on, with device 0 for whatever device was asked. */
#define PASS_ON(device, types, arguments)       \
  REAL(types);                                  \
  if (!is_shown(device)) return INVALID_DEVICE; \
  const int status = next arguments

int cuDeviceGetCount(int *count) {
  PASS_ON(0, (int *), (count));
  if (status == SUCCESS && *count > 0) *count = num_devices();
  return status;
}

int cuDeviceGet(int *device, int ordinal) {
  PASS_ON(ordinal, (int *, int), (device, 0));
  if (status == SUCCESS) *device = ordinal;
  return status;
}

int cuDeviceGetName(char *name, int size, int device) {
  PASS_ON(device, (char *, int, int), (name, size, 0));
  return status;
}

/* The last byte tells the devices apart. */
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  PASS_ON(device, (unsigned char *, int), (uuid, 0));
  if (status == SUCCESS) uuid[15] ^= (unsigned char)device;
  return status;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  PASS_ON(device, (size_t *, int), (bytes, 0));
  return status;
}

/* Functions of one PCI device: its last digit, from 0 to 7. */
int cuDeviceGetPCIBusId(char *id, int size, int device) {
  PASS_ON(device, (char *, int, int), (id, size, 0));
  const size_t length = status == SUCCESS ? strlen(id) : 0;
  if (length > 0) id[length - 1] = (char)('0' + device);
  return status;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  PASS_ON(device, (int *, int, int), (value, attribute, 0));
  if (status == SUCCESS && attribute == MULTIPROCESSOR_COUNT) *value /= num_devices();
  return status;
}

/* Retained once more than asked: code stays as long as the context. */
int cuDevicePrimaryCtxRetain(void **context, int device) {
  static int is_kept;
  PASS_ON(device, (void **, int), (context, 0));
  if (status == SUCCESS && !__atomic_exchange_n(&is_kept, 1, __ATOMIC_RELAXED)) next(context, 0);
  return status;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  PASS_ON(device, (int), (0));
  return status;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  if (!is_shown(device) || !is_shown(peer)) return INVALID_DEVICE;
  *can = device != peer;
  return SUCCESS;
}

/* All contexts are one. */
int cuCtxEnablePeerAccess(void *context, unsigned flags) { return context && flags == 0 ? SUCCESS : INVALID_VALUE; }

struct access {
  int location_type, location_id, flags;
};

/* Access of each of the devices is access of the one. */
int cuMemSetAccess(unsigned long long address, size_t size, const struct access *given, size_t count) {
  if (count != 1) return INVALID_VALUE;
  const struct access own = {given->location_type, 0, given->flags};
  PASS_ON(given->location_id, (unsigned long long, size_t, const struct access *, size_t), (address, size, &own, 1));
  return status;
}

struct code {
  struct code *next;
  void *module;
  size_t size;
  char image[];
};
static struct code *loaded;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

/* Where an ELF file's tables end; 0 of any other image. */
static size_t size_of(const void *image) {
  uint64_t at[2];
  uint16_t sizes[4];
  if (memcmp(image, "\177ELF", 4) != 0) return 0;
  memcpy(&at[0], (const char *)image + 32, 8);
  memcpy(&at[1], (const char *)image + 40, 8);
  memcpy(&sizes[0], (const char *)image + 54, 8);
  const uint64_t segments = at[0] + (uint64_t)sizes[0] * sizes[1], sections = at[1] + (uint64_t)sizes[2] * sizes[3];
  return segments > sections ? segments : sections;
}

int cuModuleLoadData(void **module, const void *image) {
  REAL((void **, const void *));
  const size_t size = image ? size_of(image) : 0;
  if (size == 0) return next(module, image);
  pthread_mutex_lock(&loading);
  struct code *one = loaded;
  while (one && (one->size != size || memcmp(one->image, image, size) != 0)) one = one->next;
  int status = SUCCESS;
  if (one) *module = one->module;
  else status = next(module, image);
  if (!one && status == SUCCESS && (one = malloc(sizeof *one + size))) {
    *one = (struct code){loaded, *module, size};
    memcpy(one->image, image, size);
    loaded = one;
  }
  pthread_mutex_unlock(&loading);
  return status;
}

int cuModuleUnload(void *module) {
  REAL((void *));
  pthread_mutex_lock(&loading);
  const struct code *one = loaded;
  while (one && one->module != module) one = one->next;
  pthread_mutex_unlock(&loading);
  return one ? SUCCESS : next(module);
}
