#include "warden/metrics.h"

#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <boost/json.hpp>

namespace moorage::warden {

std::string metrics_json(size_t running_execs) {
  struct sysinfo memory {};
  ::sysinfo(&memory);
  struct statvfs disk {};
  if (::statvfs("/workspace", &disk) != 0) ::statvfs("/", &disk);
  const uint64_t unit = memory.mem_unit;
  return boost::json::serialize(boost::json::object{
      {"ts", ::time(nullptr)},
      {"cpu_count", ::sysconf(_SC_NPROCESSORS_ONLN)},
      {"mem_total", memory.totalram * unit},
      {"mem_used", (memory.totalram - memory.freeram - memory.bufferram) * unit},
      {"disk_total", uint64_t{disk.f_blocks} * disk.f_frsize},
      {"disk_used", uint64_t{disk.f_blocks - disk.f_bfree} * disk.f_frsize},
      {"processes", running_execs},
  });
}

}  // namespace moorage::warden
