// `restore-store`: finds and starts mooraged, which owns the store's lock, ids and layers and does
// the work. Needs no running daemon.
#include <unistd.h>

#include <climits>

#include "base/error.h"
#include "base/os/files.h"
#include "cli/client/context.h"
#include "cli/commands.h"

namespace moorage::cli {
namespace {

struct RestoreOptions {
  std::string replica;
  std::string store;
  std::string config;
};

// Beside this program, or where the package installs it.
std::string find_daemon() {
  std::string self(PATH_MAX, '\0');
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
  self.resize(static_cast<size_t>(base::check(length, "find this program")));
  const std::string directory = self.substr(0, self.rfind('/'));
  for (const std::string& place : {directory + "/mooraged", directory + "/../sbin/mooraged"}) {
    if (base::path_exists(place)) return place;
  }
  throw Error(Code::not_found, "mooraged is not installed beside this program",
              "install it; then: mooraged --restore-store DIR");
}

int run(const RestoreOptions& options) {
  std::vector<std::string> words{find_daemon(), "--restore-store", options.replica};
  if (!options.config.empty()) words.insert(words.end(), {"--config", options.config});
  if (!options.store.empty())
    words.insert(words.end(), {"--set", "store.directory=" + options.store});
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  base::throw_errno("start " + words[0]);
}

}  // namespace

Action restore_store_command(Options& options) {
  auto restore = std::make_shared<RestoreOptions>();
  options.argument({"DIR", "", "The replica.directory of the lost store"}, restore->replica);
  options.value({"--store", "DIR", "An empty directory; default: store.directory"}, restore->store);
  options.value({"--config", "FILE", "The configuration file of the new daemon"}, restore->config);
  return [restore](Context&) { return run(*restore); };
}

}  // namespace moorage::cli
