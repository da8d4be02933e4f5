// `apply`: puts an agent's changes into a directory of the caller's, which may have changes of its
// own. Three-way for each file: what only the agent changed is taken, what both changed alike
// stays, text that both changed is merged. All or nothing: a conflict, an error or a killed program
// leaves the directory as it was (the next call undoes what was cut). No link is followed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::cli {

// Modes are git's: 0100644, 0100755, 0120000; 0: absent.
struct AgentChange {
  std::string path;  // raw bytes, relative
  uint32_t before = 0;
  uint32_t after = 0;
};

using ContentSink = std::function<void(std::string_view)>;
// The bytes of a file, the target of a link.
struct AgentContents {
  std::function<void(const std::string& path, const ContentSink& sink)> before;
  std::function<void(const AgentChange& change, const ContentSink& sink)> after;
};

struct Applied {
  size_t taken = 0;    // as the agent has them
  size_t merged = 0;   // with changes of both
  size_t present = 0;  // were already so
};

// Throws conflict with the paths and reasons, without a hint; then nothing was changed. only_check:
// never changes anything. plans: for the next call, if the program is killed (swap.h).
Applied apply_changes(const std::string& directory, const std::string& plans,
                      const std::vector<AgentChange>& changes, const AgentContents& contents,
                      bool only_check);

}  // namespace moorage::cli
