#include <sys/sysinfo.h>

#include <algorithm>

#include "daemon/json/json_object.h"

namespace moorage::daemon {
namespace {

JsonObject line_object(const workspace::TopLine& line) {
  const auto& row = line.row;
  JsonObject object{{"id", row.id.str()},
                    {"name", row.name},
                    {"owner", row.owner_uid},
                    {"state", state_db::state_name(row.state)},
                    {"limits",
                     {{"memory_bytes", row.policy.limits.memory_bytes},
                      {"cpus", row.policy.limits.cpus},
                      {"pids", row.policy.limits.pids}}},
                    {"execs_running", line.execs.size()}};
  put_known(object, "disk_bytes", row.disk_bytes);
  put_time(object, "last_output_at", line.last_output_ms);
  if (line.sandbox) {
    JsonObject sandbox{{"id", line.sandbox->id.str()},
                       {"state", state_db::state_name(line.sandbox->state)}};
    if (line.status.state != backends::SandboxState::absent) {
      sandbox["memory_bytes"] = line.status.memory_bytes;
      sandbox["cpu_us"] = line.status.cpu_usec;
      sandbox["processes"] = line.status.processes;
    }
    object["sandbox"] = std::move(sandbox);
  }
  if (!line.execs.empty()) {
    object["doing"] = doing_object(line.execs.back());
  }
  boost::json::array waiting;
  for (const auto& exec : line.execs) {
    if (std::find(line.waiting.begin(), line.waiting.end(), exec.id) == line.waiting.end())
      continue;
    JsonObject one{{"exec", exec.id.str()}};
    put_byte_list(one, "argv", exec.request.argv);
    waiting.push_back(std::move(one));
  }
  object["waiting"] = std::move(waiting);
  return object;
}

}  // namespace

std::string top_json(const workspace::TopView& view, const StoreSpace& space) {
  return text_of({{"at", base::format_utc(view.wall_ms)},
                  {"boot_us", view.boot_us},
                  {"cpus", get_nprocs()},
                  {"space", free_object(space)},
                  {"workspaces", array_of(view.lines, line_object)}});
}

}  // namespace moorage::daemon
