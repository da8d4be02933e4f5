// The way to the outpost of this sandbox, from nothing to a stream that has been greeted, again and
// again: make or find the machine, run the outpost (put the programs first if there are none), say
// hello. After a loss it tries again by itself once the sandbox has begun: after 0.1 s, then
// longer, up to 30 s.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/os/event_loop.h"
#include "base/wire/link_config.h"
#include "link/call.h"
#include "link/errands.h"
#include "link/machine.h"
#include "link/stream.h"

namespace moorage::link {

class UplinkHost {
 public:
  virtual ~UplinkHost() = default;
  virtual void on_up(const boost::json::object& greeting) = 0;
  // Another greeting of the same stream.
  virtual void on_sign(const boost::json::object& greeting) = 0;
  // The stream ended, or could not be made. The stream lives until this returns.
  virtual void on_down(const Error& reason) = 0;
  virtual uint64_t acknowledged() const = 0;  // the last pack that is here
  virtual bool may_create() const = 0;        // false: the sandbox has begun, or is lost
  virtual bool needed() const = 0;            // so the life of the machine is extended
};

class Uplink {
 public:
  Uplink(base::Loop& loop, UplinkHost& host, const base::LinkConfig& config, KeyReader key);

  void connect();  // unless it is connected, or tries
  void keep_trying() { keep_trying_ = true; }
  bool keeps_trying() const { return keep_trying_; }
  // Something needs the machine now: its life is extended, or it is reached at once, even if its
  // provider has paused it. Without this, and unless the host needs it, a paused machine stays so.
  void use();
  // How long the provider was asked to keep the machine from now on; 0: not known.
  uint64_t kept_ms() const;
  bool asleep() const { return asleep_; }  // paused by its provider
  void ask_for_sign();                     // answered by on_sign()
  void stop_trying();
  Stream* stream() const { return up_ ? stream_.get() : nullptr; }
  const std::optional<Error>& reason() const { return reason_; }  // why not connected
  // Removes the sandbox there without a stream. Tries to connect again only if that fails.
  using Done = std::function<void(const Error* error)>;
  void remove(Done done);
  // For another sandbox, once nothing of this one is left there.
  void pause(const Done& done);

 private:
  void begin_errand(bool put_programs);
  void take_run(std::unique_ptr<Run> run, bool put_programs);
  boost::json::object hello_request() const;
  void greet();
  void greeted(const boost::json::object& answer, const Error* error);
  void let_out(const boost::json::object& greeting);
  void reached(const boost::json::object& greeting);
  void down(const Error& reason);
  void check_life();
  using Leaving = void (RemoteMachine::*)(Deadline deadline);
  void leave(Leaving way, Done done);
  bool ends_by_itself() const { return extend_every_.count() > 0; }
  void keep_alive();
  void extend();
  void not_extended(const Error& error, bool resumed);

  base::Loop& loop_;
  UplinkHost& host_;
  const base::LinkConfig config_;
  std::shared_ptr<RemoteMachine> machine_;  // used by the errands' thread alone
  Errands errands_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Call> hello_;
  bool busy_ = false;     // an errand or a hello is on its way
  uint64_t streams_ = 0;  // that have ended
  bool up_ = false;
  bool resumed_ = false;  // the machine was paused, and no greeting has told it
  bool did_put_ = false;  // for the stream that is greeted now
  bool refused_ = false;  // by the outpost itself
  bool keep_trying_ = false;
  bool wanted_ = false;  // use() was called, and it is not reached yet
  bool asleep_ = false;
  bool opened_ = false;                   // by its provider, for the hosts of the rules
  std::chrono::seconds extend_every_{0};  // 0: not reached yet, or it does not end by itself
  int64_t extended_ms_ = 0;
  int64_t kept_until_ms_ = 0;
  std::optional<Error> reason_;
  std::chrono::milliseconds pause_{100};
  base::Timer again_;
  base::Timer life_;
  base::Timer extend_;
};

}  // namespace moorage::link
