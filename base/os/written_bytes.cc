#include "base/os/written_bytes.h"

#include <cstdlib>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/process.h"

namespace moorage::base {
namespace {

// Treat a process that ends during the read as gone.
std::vector<std::string> threads_of(pid_t process) {
  try {
    return list_directory("/proc/" + std::to_string(process) + "/task");
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

uint64_t written_bytes(pid_t process) {
  constexpr std::string_view kField = "\nwrite_bytes: ";
  const std::string text = read_proc_file(process, "io");
  const size_t at = text.find(kField);
  if (at == std::string::npos) return 0;
  return std::strtoull(text.c_str() + at + kField.size(), nullptr, 10);
}

std::vector<pid_t> process_tree(pid_t root, size_t at_most) {
  std::vector<pid_t> tree{root};
  for (size_t next = 0; next < tree.size(); ++next) {
    const pid_t parent = tree[next];
    for (const std::string& thread : threads_of(parent)) {
      std::istringstream children(read_proc_file(parent, "task/" + thread + "/children"));
      for (pid_t child = 0; children >> child;) {
        if (tree.size() >= at_most) return tree;
        tree.push_back(child);
      }
    }
  }
  return tree;
}

}  // namespace moorage::base
