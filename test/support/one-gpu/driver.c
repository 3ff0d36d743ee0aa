/**
 * A CUDA driver that shows one GPU as several: devices 0 to N - 1, N from ONE_GPU_DEVICES (2), are all the real device 0 and
 * share its primary context. Only functions that take or give a device are here; for all others the loader finds the real
 * library, which this one is linked against. Of the multiprocessors each device has its share: blocks that wait for each other
 * must all find their places, those of every rank. Built by build.sh; README.md says what it is for.
 */
#include <dlfcn.h>
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

/* Passes a call on to the real function of the same name, with device 0 for whatever device was asked. */
#define PASS_ON(device, types, arguments)                        \
  static int(*next) types;                                       \
  if (!next) next = (int(*) types)real(__func__);                \
  if (!next) return NOT_FOUND;                                   \
  if (!is_shown(device)) return INVALID_DEVICE;                  \
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

int cuDevicePrimaryCtxRetain(void **context, int device) {
  PASS_ON(device, (void **, int), (context, 0));
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
