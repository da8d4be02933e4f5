// See probe_view.cc.
#pragma once

void tell_view();
