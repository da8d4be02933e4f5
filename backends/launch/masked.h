// What is covered in every sandbox's /proc, because it tells about the host as a whole: files with
// /dev/null, directories with nothing. What is missing in this kernel is passed over.
#pragma once

namespace moorage::launch {

inline constexpr const char* kMaskedFiles[] = {
    "kcore",       "keys",        "kallsyms",      "kmsg",      "timer_list",
    "sched_debug", "key-users",   "latency_stats", "modules",   "sysrq-trigger",
    "interrupts",  "cmdline",     "partitions",    "diskstats", "swaps",
    "slabinfo",    "vmallocinfo", "pagetypeinfo",  "iomem",     "ioports"};
inline constexpr const char* kMaskedDirectories[] = {"acpi", "scsi", "asound", "bus",
                                                     "fs",   "irq",  "driver"};

}  // namespace moorage::launch
