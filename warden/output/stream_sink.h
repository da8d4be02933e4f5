// Sends output as envd events to the listening connections: the one that started the command, and
// later Connect calls. Without a listener the output is read and dropped, as in E2B. A slow
// listener delays the command; one that reads nothing for 60 s is dropped (warden/io/connection.h).
#pragma once

#include <list>
#include <memory>

#include "base/error.h"
#include "warden/io/connection.h"
#include "warden/io/loop.h"
#include "warden/output/output_sink.h"

namespace moorage::warden {

class StreamSink : public OutputSink {
 public:
  explicit StreamSink(Loop& loop) : loop_(loop) {}

  // Begins the stream, and at once sends the start event and, if the exec is over, its end.
  void add_listener(const std::shared_ptr<Connection>& connection, std::chrono::seconds keepalive);
  // Ends all streams with this error: the command could not start.
  void fail(const Error& error);

  void started(uint32_t pid, bool merged) override;
  bool ready() const override;
  void write(base::FrameKind kind, std::string_view bytes) override;
  void end(const ExecEnd& end) override;
  bool settled() const override { return true; }

 private:
  struct Listener {
    Listener(Loop& loop, const std::shared_ptr<Connection>& c, std::chrono::seconds interval)
        : connection(c), keepalive(loop), keepalive_interval(interval) {}
    std::weak_ptr<Connection> connection;
    Timer keepalive;
    std::chrono::seconds keepalive_interval;
  };
  void send_all(std::string_view json);
  void arm_keepalive(Listener& listener);
  void end_all();
  void send_end(Connection& connection) const;

  Loop& loop_;
  std::list<Listener> listeners_;
  uint32_t pid_ = 0;
  std::string end_event_;  // empty while it runs, and if it could not start
  std::string last_envelope_ = "{}";
};

}  // namespace moorage::warden
