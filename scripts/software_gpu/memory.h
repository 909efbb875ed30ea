/* Where an address lies. */
#ifndef MEMORY_H
#define MEMORY_H
#include "software_gpu.h"

enum place place_of(const void *at);
int device_of_address(const void *at); /* -1: of none */
#endif
