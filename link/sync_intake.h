// What changed there comes here as packs: incoming/N.pack in the sandbox's directory, complete and
// durable before it has that name. N rises by one; the file `incoming/last` holds the newest N, as
// the daemon removes packs that it has applied. A pack that was cut comes again with the same
// number.
//
// One sync at a time. Whoever asks is answered by a sync that began after the question, so those
// who ask during a sync share the next one. With `ahead`, the request of the next sync is there
// already when nobody has asked yet: it begins by itself when a command ends. The bytes are
// hostile; here they are only counted: a pack has a limit, none is taken while the disk is nearly
// full, and one that fails leaves nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "link/stream.h"

namespace moorage::link {

// Not applied by the daemon; then only those syncs that are asked for.
inline constexpr size_t kMaxWaitingPacks = 1000;

class SyncIntake {
 public:
  using Done = std::function<void(const Error* error)>;
  SyncIntake(base::Loop& loop, const std::string& sandbox_directory);
  ~SyncIntake();

  void attach(Stream& stream, bool ahead = false);
  void detach();  // the stream ended: everyone who waits gets its error first
  void request(Done done);
  bool busy() const;
  uint64_t last() const { return last_; }
  int64_t synced_ms() const { return synced_ms_; }  // when the last complete one began
  size_t waiting_packs() const;                     // that the daemon has not applied

 private:
  class Transfer;
  bool asks_ahead() const;
  void start(bool waits);
  void begun();
  void finished(const Error* error);
  void commit(uint64_t bytes);

  base::Loop& loop_;
  const std::string directory_;
  Stream* stream_ = nullptr;
  bool ahead_ = false;
  uint64_t last_ = 0;
  int64_t synced_ms_ = 0;
  std::shared_ptr<Transfer> current_;
  std::vector<Done> served_;   // by the current one
  std::vector<Done> waiting_;  // for the next one
};

}  // namespace moorage::link
