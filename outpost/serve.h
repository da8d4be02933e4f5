// `moorage-outpost serve`: the process of one sandbox here, without a terminal and in a session of
// its own, so that it outlives every connection. One event loop relays all channels; long work is
// an operation (operation.h), one at a time for the sandbox.
//
// It may be killed at any moment: commands go on, as they are the warden's. The next connect starts
// another one, which finds process 1 by its record and continues by offsets and numbers.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "outpost/directory.h"
#include "outpost/operation.h"
#include "outpost/sandbox.h"
#include "outpost/stream/channels.h"
#include "outpost/stream/network.h"
#include "outpost/stream/session.h"
#include "outpost/trees.h"

namespace boost::json {
class object;
}

namespace moorage::outpost {

class Server {
 public:
  struct Options {
    std::string directory;
    std::string name;
    uint64_t generation = 0;  // of a sandbox that is made now
    Fd listener;              // outpost.sock
  };
  explicit Server(Options options);
  void run();  // until the sandbox is destroyed, or nothing is there and nobody comes

 private:
  struct Peer {
    std::unique_ptr<Session> session;
    bool greeted = false;
    int64_t since_ms = 0;
  };
  // Its answer goes to the channel, if that still exists; work that nobody waits for is not begun.
  struct Job {
    std::weak_ptr<Later> channel;
    Operation::Work work;
    std::shared_ptr<Fd> fd;  // that the work uses
    std::function<std::unique_ptr<Channel>(Wire wire, const std::string& answer)> make_answer;
    std::function<void(const std::string& answer)> on_success = {};
    std::function<void()> on_begin = {};
  };

  void accept_one();
  void forget(const Peer* peer);
  std::unique_ptr<Channel> open(Peer& peer, std::string_view request, Wire wire);
  std::unique_ptr<Channel> hello(Peer& peer, const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> has_tree(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> put_tree(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> take_tree(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> check_tree(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> prepare(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> apply(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> start(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> http(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> journal(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> sync(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> sync_when_asked(uint64_t acknowledged, Wire wire);
  void begin_sync();
  Job sync_job(uint64_t acknowledged);
  std::unique_ptr<Channel> network(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> accept(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> stop(const boost::json::object& request, Wire wire);
  std::unique_ptr<Channel> destroy(const boost::json::object& request, Wire wire);
  void require_generation(uint64_t generation) const;
  std::string greeting() const;
  std::unique_ptr<Channel> enqueue_for(Wire wire, Job job);
  void enqueue(Job job);
  void next_job();
  void job_done(Operation::Outcome outcome);
  void run_aside(const Operation::Work& work, const Operation::Options& options,
                 Operation::Done done);
  // Nobody waits for it. `what` follows "cannot".
  void run_unasked(const std::string& what, const Operation::Work& work, std::vector<int> keep_fds);
  void settle(const std::string& key);
  ReceiveTree wanted_tree(const boost::json::object& request) const;
  void check_key(const std::string& key) const;  // and whether one more tree may arrive
  Operation::Done answer_with(std::weak_ptr<Later> waiting, std::function<void()> on_success);
  void notice_process();
  // A sync makes a dead process 1 again, but does not start it.
  bool runs() const { return living_ && process_->started; }
  void look();  // whether process 1 lives, and whether anybody still needs this process
  void finish();

  base::Loop loop_;
  Options options_;
  Directory directory_;
  Sandbox sandbox_;
  std::string abilities_;  // JSON; empty: not known yet
  std::optional<ProcessOne> process_;
  bool living_ = false;
  bool destroyed_ = false;
  int64_t needed_ms_ = 0;  // when somebody last needed this process
  Network network_;        // before the peers, whose channels use it
  std::list<Peer> peers_;
  std::deque<Job> jobs_;
  std::optional<Job> standing_sync_;  // begins with the next end of a command
  bool ended_since_sync_ = false;
  std::optional<Job> running_;
  std::unique_ptr<Operation> operation_;
  std::list<std::unique_ptr<Operation>> aside_;    // trees that arrive or are synced
  std::vector<std::unique_ptr<Operation>> ended_;  // until their handlers return
  base::Timer look_;
  base::Timer sweep_;
  std::unique_ptr<base::Watch> listener_watch_;
};

}  // namespace moorage::outpost
