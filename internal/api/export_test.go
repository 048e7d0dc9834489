package api

import "slices"

// Routes are all methods with their paths, in order.
func (a *API) Routes() (all []string) {
	for path, methods := range a.routes() {
		for method := range methods {
			all = append(all, method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}
