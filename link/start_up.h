// What a sandbox needs before its first command, in order: the base tree and the git objects on the
// machine (connect), then the mounts, the changes of the workspace's layers, and the warden
// (begin). Each step is harmless when it is repeated, so whoever was cut starts again from the
// first.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/os/event_loop.h"
#include "base/wire/link_config.h"
#include "link/call.h"
#include "link/packer.h"
#include "link/stream.h"
#include "link/volume/kept_tree.h"

namespace moorage::link {

class StartUp {
 public:
  using Done = std::function<void(const Error* error)>;
  StartUp(base::Loop& loop, const base::LinkConfig& config, Packer& packer);

  void send_trees(Stream& stream, Done done);
  void begin(Stream& stream, const std::vector<base::LinkLayer>& layers, Done done);
  // Files that the daemon changed in the mounts here, or, `repairs`, that the machine has lost.
  struct Paths {
    std::vector<std::string> paths;
    bool repairs = false;
  };
  void send_paths(Stream& stream, const Paths& paths, Done done);
  void cancel() { call_.reset(); }             // `done` is not called any more
  uint64_t resent() const { return resent_; }  // entries that a paused machine had lost
  bool busy() const { return call_ != nullptr; }
  const boost::json::object& prepared() const { return prepared_; }  // the answer of `prepare`

 private:
  using Next = std::function<void(const boost::json::object& answer)>;
  void ask(boost::json::object request, Next next);
  void send_pack(boost::json::object request, const PackJob& job, Next next);
  void call(Call::Options options, bool with_pack, Next next);
  void check_tree(const base::LinkTree& tree, std::function<void()> next);
  void send_tree(const base::LinkTree& tree, const boost::json::object& there,
                 std::function<void()> next);
  void take_tree(const base::LinkTree& tree, const KeptTree& kept, std::function<void()> next);
  void push_tree(const base::LinkTree& tree, PackJob job, std::function<void()> next);
  void need_tree(const base::LinkTree& tree, std::function<void()> next);
  uint64_t next_sequence();

  base::Loop& loop_;
  const base::LinkConfig& config_;
  Packer& packer_;
  const base::Watch packer_end_;
  Stream* stream_ = nullptr;
  std::shared_ptr<Call> call_;
  Done done_;
  boost::json::object prepared_;
  uint64_t sequence_ = 0;
  uint64_t resent_ = 0;
};

}  // namespace moorage::link
