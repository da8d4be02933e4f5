// Paths masked in every sandbox's /proc because they reveal the whole host: files with /dev/null,
// directories with an empty one. Paths missing in this kernel are skipped.
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
