// The socket that the daemon knows as the sandbox's warden: one HTTP request a connection. Requests
// of backends/remote are answered here; all others pass as bytes to the warden there. Of Start, the
// descriptor of the journal stays here (header Moorage-Tag says whose it is), and the warden there
// writes into its own spool instead (Moorage-Spool). Only the daemon can connect: the socket is
// root's. Sizes are bounded all the same.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "link/journal_intake.h"
#include "link/stream.h"

namespace moorage::link {

struct FrontRequest {
  std::string method;
  std::string path;
  std::string body;
  std::vector<base::Fd> fds{};

  boost::json::object fields() const;  // the body; empty if it is not an object
};

class FrontHost {
 public:
  // Status 200 and a JSON object, or an error.
  using Answer = std::function<void(const std::string& body, const Error* error)>;
  virtual ~FrontHost() = default;
  virtual bool answers(std::string_view path) const = 0;
  // `answer` may be called later, once; it does nothing if the daemon has left meanwhile.
  virtual void handle(FrontRequest request, Answer answer) = 0;
  virtual Stream& running_sandbox() = 0;  // throws the reason why requests cannot pass
  // None pass now, but the sandbox runs there, and the link tries at once to reach it.
  virtual bool comes_back() = 0;
  // Called before the request goes out: from now on the journal survives this process.
  virtual void keep_journal(JournalFile journal) = 0;
  virtual void command_asked(const std::string& tag) = 0;  // after the request went out
  virtual void command_started(const std::string& tag) = 0;
  virtual void command_refused(const std::string& tag) = 0;
};

class Front {
 public:
  Front(base::Loop& loop, FrontHost& host, base::Fd listener);
  ~Front();
  Front(Front&&) = delete;
  // Requests pass now: those that were held for a while go on.
  void go_on();

 private:
  class Client;
  friend class Client;
  void accept();
  void forget(Client* client);

  base::Loop& loop_;
  FrontHost& host_;
  base::Fd listener_;
  std::map<Client*, std::shared_ptr<Client>> clients_;
  base::Watch watch_;
};

}  // namespace moorage::link
