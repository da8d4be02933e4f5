#include "link/recovery/restore.h"

#include <utility>

namespace moorage::link {
namespace {

constexpr std::chrono::milliseconds kAgain{100};

}  // namespace

void Restore::run(Stream& stream, std::vector<std::string> paths, StartUp::Done done) {
  if (syncs_.waiting_packs() > 0) {
    return later_.start(kAgain, [this, &stream, paths = std::move(paths), done = std::move(done)] {
      run(stream, paths, done);
    });
  }
  const size_t count = paths.size();
  start_up_.send_paths(stream, {std::move(paths), true},
                       [this, count, done = std::move(done)](const Error* error) {
                         if (!error) restored_ += count;
                         done(error);
                       });
}

}  // namespace moorage::link
