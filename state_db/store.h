// The database of one store: DIRECTORY/state.db, SQLite in WAL mode. One process owns a store
// (flock on state.db.lock, held until destruction) and writes through one connection, guarded by a
// mutex: every call is safe from any thread. The tables have their own headers
// (state_db/tables/workspaces.h ...); states change only through `move`. A commit is durable when
// the call returns, and so is everything the call has read: commits of several threads share a sync
// (log_sync.h). After a disk failure in a commit or a damaged page, the store refuses all calls
// (Error io; failed() is true): the daemon must exit and verify. A full disk throws
// resource_exhausted, changes nothing, and releases the reserve file for the next try.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/os/fd.h"
#include "state_db/event.h"
#include "state_db/lifecycle.h"
#include "state_db/store_options.h"

namespace moorage::state_db {

class Connection;
class LogSync;
class ReadTransaction;
class Statement;

class Store {
 public:
  // Opens or creates the database; migrates it. Throws conflict (another process holds it), and
  // before any change corrupted (checked after an unclean end) and unsupported (a newer version's).
  explicit Store(const StoreOptions& options);
  Store(const StoreOptions& options, Fd lock);  // from lock_store()
  ~Store();
  Store(Store&&) = delete;

  const std::string& store_id() const { return store_id_; }  // 8 hex digits, fixed
  uint64_t commits() const { return commits_; }              // synchronous writes since the open
  bool failed() const;                                       // of any of its connections
  bool was_clean() const { return was_clean_; }              // the last owner closed it properly
  const std::string& repaired() const { return repaired_; }  // repairs at the open; empty: none
  const base::Clock& clock() const { return *clock_; }

  // Runs work() in one transaction and returns its result; an exception rolls back. Holds the
  // store's lock: do nothing slow in it. A nested call is a savepoint, so tables' methods compose.
  template <typename Work>
  auto transaction(Work&& work) -> std::invoke_result_t<Work> {
    Transaction guard(*this);
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      work();
      guard.commit();
    } else {
      auto result = work();
      guard.commit();
      return result;
    }
  }

  // The only writer of states: compare-and-set plus the event, in one transaction. Throws conflict
  // (the row's state is not `from`), not_found, internal (the table lacks the move).
  template <typename State>
  void move(typename LifeCycle<State>::Id id, State from, State to, std::string_view reason = {}) {
    move_row({LifeCycle<State>::kNoun, state_name(from), state_name(to), may_move(from, to)},
             id.value, id.str(), reason);
  }

  int64_t add_event(std::string_view kind, const Subject& subject, std::string_view text = {});
  std::vector<Event> events(int64_t since_seq, size_t limit, base::WorkspaceId only = {});
  int64_t last_event();
  // Called after every commit that added events, with the last seq, on the committing thread,
  // without the store's lock; calls may overtake each other. Set once, before other threads use it.
  void on_event(std::function<void(int64_t last_seq)> wake) { wake_ = std::move(wake); }
  int64_t trim_events(int64_t keep);  // drops all but the newest; returns how many

  // Checkpoints the log if due, without delaying commits. Call it once a second, and between the
  // transactions of a heavy writer, never within one: it takes locks in the opposite order.
  void checkpoint();
  bool give_room();       // releases the reserve file; false if there is none
  bool refill_reserve();  // creates it again; false if there is still no room
  bool has_reserve() const;
  std::vector<std::string> check();            // problems of the file and its references
  std::vector<std::string> check_id_ranges();  // and of the pool of ids

  Statement prepare(std::string_view sql);  // for this layer's tables; holds the store's lock
  int64_t last_insert_id();
  // First event of a new row; call it in the transaction that inserts the row.
  template <typename State>
  void record_new(typename LifeCycle<State>::Id id, std::string_view text = {}) {
    record_row(LifeCycle<State>::kNoun, id.value, {}, state_name(LifeCycle<State>::kFirst), text);
  }

 private:
  friend class GroupedReads;
  friend class ReadTransaction;
  struct RowMove {
    std::string_view noun;
    std::string_view from;
    std::string_view to;
    bool legal;
  };
  class Transaction {
   public:
    explicit Transaction(Store& store);
    ~Transaction();
    void commit();

   private:
    Store& store_;
    std::unique_lock<std::recursive_mutex> lock_;
    int64_t seq_before_;
    int64_t changes_before_ = 0;
    bool open_ = true;
  };

  void check_file();
  void run(std::string_view sql);  // under the lock; without a sync
  void move_row(const RowMove& move, int64_t id, const std::string& id_text,
                std::string_view reason);
  void record_row(std::string_view noun, int64_t id, std::string_view from, std::string_view to,
                  std::string_view text);

  const base::Clock* clock_;
  std::string directory_;
  uint64_t reserve_bytes_;
  Fd lock_file_;
  std::recursive_mutex mutex_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<LogSync> log_;
  std::mutex checkpoint_mutex_;
  std::unique_ptr<Connection> checkpointer_;
  std::recursive_mutex reader_mutex_;
  std::unique_ptr<Connection> reader_;
  std::string store_id_;
  std::function<void(int64_t)> wake_;
  int depth_ = 0;
  int64_t new_seq_ = 0;  // last event of the open transaction, 0 if none
  std::atomic<uint64_t> commits_{0};
  bool was_clean_ = true;
  std::string repaired_;
};

}  // namespace moorage::state_db
